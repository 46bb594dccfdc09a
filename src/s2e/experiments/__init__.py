"""The figures and tables of the paper, as declarations that feed the same line."""
