"""Checks before the start: a machine's own links (links.py), a program beside the worker (job.py), and when which
of them is due (checking.py)."""
