"""Runs one program in a sandbox like a worker's: `python -I -S trial.py LIFELINE DIRECTORY SECONDS`.

Only the few lines that find agent/supervision, as in supervisor.py.
"""

import os.path
import sys

if __name__ == "__main__":
    sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120 - as in supervisor.py
    from agent.supervision.trial import main

    sys.exit(main(int(sys.argv[1]), sys.argv[2], float(sys.argv[3])))
