"""One small file for each group of commands. They import the client late: `--help` must be fast."""
