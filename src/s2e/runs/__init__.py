"""The run directory: written atomically, read back, locked, resumed."""
