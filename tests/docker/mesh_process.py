"""The agent's mesh by itself, for a machine without an agent: reads desired states, a line each, and answers each with
why it doesn't hold yet. SIGKILL leaves everything as it is.

    python -m tests.docker.mesh_process STATE ADDRESS [off]
"""

import json
import sys
from pathlib import Path

from agent.mesh.mesh import Mesh, Settings
from wire.assignments import Desired
from wire.mesh import LISTEN_PORT

state, address, *off = sys.argv[1:]
mesh = Mesh(Path(state), Settings(LISTEN_PORT, on=not off), lambda: address, lambda: None)
mesh.start()
report = mesh.report()
sys.stdout.write(f"{report.model_dump_json() if report else None}\n")
sys.stdout.flush()
for line in sys.stdin:
    mesh.apply(Desired.model_validate_json(line))
    flaw = mesh.ready(seconds=8)
    sys.stdout.write(json.dumps({"flaw": flaw, "mtu": mesh.mtu}) + "\n")
    sys.stdout.flush()
