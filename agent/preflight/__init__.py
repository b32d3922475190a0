"""Checks before the start: a machine's own links (links.py), a program beside the worker (program.py), and when which
of them is due (checking.py)."""
