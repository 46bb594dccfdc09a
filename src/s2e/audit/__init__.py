"""Which given labels are probably wrong, and relabelling."""
