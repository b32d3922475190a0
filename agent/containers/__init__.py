"""The runtime docker: workers are containers of the machine's own Docker engine.

A worker's container is made by the agent, through the Docker SDK, and kept by a supervisor of its own
(agent/supervision/container.py), as a bubblewrap worker is.
"""
