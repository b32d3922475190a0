"""The `astra` command line: a client of the public API, and of nothing else."""
