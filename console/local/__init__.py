"""What stands behind `./dev`: local services, the console's processes, the demo, tests and checks.

Nothing here imports Django; the console is only ever started as a process of its own. So a broken settings
file never keeps PostgreSQL from being stopped, and commands start at once.
"""
