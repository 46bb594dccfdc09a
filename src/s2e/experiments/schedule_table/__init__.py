"""A table of trained schedules, and a model of it that answers in place of trainings."""
