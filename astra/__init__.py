"""The `astra` command line: a client of the public API, and of nothing else."""

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""
