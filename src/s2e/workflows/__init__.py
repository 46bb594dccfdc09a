"""The pipeline behind every door: prepare, relabel, search, train, test, audit, predict, compare."""
