"""Training a population of members in lockstep: the epoch loop and everything it needs on a device."""
