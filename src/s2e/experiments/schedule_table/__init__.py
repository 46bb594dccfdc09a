"""A table of trained schedules, and a surrogate fitted to it that replaces trainings."""
