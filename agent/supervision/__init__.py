"""What runs in a worker's supervisor process, apart from the agent.

Standard library only, and of that only what loads in a millisecond: `json`, `pathlib`, `signal`, `socket` and
`subprocess` together would triple the time it takes to prepare a worker. Hence plain `os` and C modules here.
"""
