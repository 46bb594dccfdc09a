"""The report on runs: their numbers, drawings of them, the samples to look at, and one HTML page."""
