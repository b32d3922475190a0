"""Keeps one bubblewrap worker: `python -I -S supervisor.py [DIRECTORY [PORT_DESCRIPTOR]]`, in a session of its own.

Only the few lines that find agent/supervision, whose modules are compiled once and for all: a script is
compiled anew at every start, and this one's start is part of every worker's.
"""

import os.path
import sys

if __name__ == "__main__":
    # Isolated mode leaves the script's own place out; it goes last, behind the standard library.
    sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120 - pathlib takes 8 ms to load
    from agent.supervision.worker import main

    sys.exit(main(sys.argv[1:]))
