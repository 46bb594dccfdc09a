"""`python -m s2e`."""

from s2e.cli import main

main()
