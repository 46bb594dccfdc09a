"""Reference networks as factories, one file for each family."""
