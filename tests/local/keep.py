"""Does one kind of work under the keeper, for a test: python keep.py WORK REPORT.

The work starts a process that detaches like an agent's supervisor (new session, parent gone), and writes the
pids of itself and of that process to the file REPORT.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from console.local import interruption
from console.local.errors import LocalError
from console.local.instance import write_private
from console.local.keeper import run_kept

_DETACH = """
import subprocess
print(subprocess.Popen(["sleep", "600"], start_new_session=True, stdout=subprocess.DEVNULL).pid)
"""


def detached() -> int:
    printed = subprocess.run([sys.executable, "-c", _DETACH], stdout=subprocess.PIPE, check=True).stdout
    return int(printed)


def returns() -> int:
    return 7


def stays() -> int:
    time.sleep(600)
    return 0


def cleans_up() -> int:
    """Takes its time to end after the first signal, and less after the second."""
    try:
        time.sleep(600)
    finally:
        Path(sys.argv[2]).with_suffix(".ending").touch()
        while not interruption.hurried():
            time.sleep(0.01)
    return 0


def complains() -> int:
    raise LocalError("The reason is this.")


def main() -> int:
    write_private(Path(sys.argv[2]), json.dumps({"worker": os.getpid(), "detached": detached()}))
    works = {"returns": returns, "stays": stays, "cleans_up": cleans_up, "complains": complains}
    return works[sys.argv[1]]()


if __name__ == "__main__":
    sys.exit(run_kept(main))
