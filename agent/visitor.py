"""Runs one command inside a worker's sandbox: `python -I -S visitor.py LIFELINE`.

Only the few lines that find agent/supervision, as in supervisor.py.
"""

import os.path
import sys

if __name__ == "__main__":
    sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120 - as in supervisor.py
    from agent.supervision.visit import main

    sys.exit(main(int(sys.argv[1])))
