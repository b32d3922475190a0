"""astraeus-agent: runs on every machine, dials out to the console and keeps that machine's workers as wanted.

Imports wire/ only. `main` is the command line, `daemon` the running agent, `supervisor` the small process
that outlives the agent beside every worker.
"""

VERSION = "0.1.0"
