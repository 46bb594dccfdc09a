"""The paper's figures and tables: convergence, spaces and samplers compared, and a table of trained schedules.

Nothing is imported here: the command line imports each experiment when it runs.
"""
