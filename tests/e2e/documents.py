"""Run documents of the end-to-end tests, and the scripts in them."""

import contextlib
import random
import socket
from typing import Any

Document = dict[str, Any]

NUMBERED = "trap 'echo end; exit 0' TERM; echo start; while :; do echo line $((++i)); sleep 0.05; done"
"""Prints numbered lines until it is stopped."""


def rendezvous_port() -> str:
    """A port that nothing uses, below those that the kernel gives to connections.

    The machines are simulated, their ports are this host's: another console's run here may take 29500 any time.
    """
    while True:
        port = random.randrange(20000, 29500)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return str(port)


def small(name: str, script: str, *, workers: int = 1, **more: Any) -> Document:
    """A run of bash scripts without GPUs. `more`: fields of the template, or of `spec` where they belong there."""
    env = {"MASTER_PORT": rendezvous_port()}
    spec_fields = ("on_failure", "max_restarts", "barrier_timeout_seconds", "start")
    spec = {key: more.pop(key) for key in spec_fields if key in more}
    return {
        "metadata": {"name": name},
        "spec": {
            "start": "Gang",
            "on_failure": "FailJob",
            **spec,
            "task_template": {
                "image": "none",
                "command": "bash",
                "args": ["-c", script],
                "env": env,
                "requested_resources": {"machines": workers, "cpu_cores": 1, "memory_bytes": 268435456},
                **more,
            },
        },
    }


def gang(name: str, script: str, **more: Any) -> Document:
    """The same on both machines."""
    return small(name, script, workers=2, **more)
