"""Searching a schedule: the generation loop over an Optuna study, its plan, its storage and pruning."""
