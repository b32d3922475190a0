"""Starts local services for a test in a process of its own: python serve.py ROOT DURABLE (0 or 1).

Prints one line of JSON when they answer, and ends them when its standard input ends.
"""

import json
import os
import sys
from pathlib import Path

from console.local.instance import exclusive
from console.local.keeper import run_kept
from console.local.services import local_services


def main() -> int:
    root, durable = Path(sys.argv[1]), sys.argv[2] == "1"
    with exclusive("services", root=root) as instance, local_services(instance, durable=durable) as services:
        facts = {"pid": os.getpid(), "pids": [process.pid for process in services.processes], **services.env}
        sys.stdout.write(json.dumps(facts) + "\n")
        sys.stdout.flush()
        sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(run_kept(main))
