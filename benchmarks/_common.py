"""What benchmarks share: a console with two simulated machines, and figures of a series."""

import contextlib
import os
import random
import socket
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg

from console.local.client import ENDED, Access
from console.local.instance import ROOT
from console.local.processes import wait_until
from console.local.stack import Stack, isolated_stack

MACHINES = ("gpu-01", "gpu-02")
INVENTORIES = ROOT / "worker_image" / "demo"


@dataclass(frozen=True)
class Bench:
    """A console with two machines that have joined and are ready."""

    stack: Stack
    access: Access
    api: httpx.Client
    """Calls below the workspace's address, with a token; connections are kept."""
    database: psycopg.Connection[tuple[Any, ...]]

    def state(self, run: str) -> str:
        """Its state, "" before there is one. From the database: requests would be part of what is measured."""
        row = self.database.execute("SELECT state FROM runs_run WHERE name = %s", [run]).fetchone()
        return str(row[0]) if row else ""

    def ended(self, run: str) -> str | None:
        """The state it has ended in."""
        state = self.state(run)
        return state if state in ENDED else None


@dataclass(frozen=True)
class Machine:
    """An agent to start on this host."""

    name: str
    inventory: Path | None = None
    """What it pretends to have; None: what this host really has."""
    gpus: tuple[str, ...] = ()
    """UUIDs of the only GPUs that it offers; none: all."""


def two_machines() -> contextlib.AbstractContextManager[Bench]:
    return console_with([Machine(name, INVENTORIES / f"{name}.json") for name in MACHINES])


@contextlib.contextmanager
def console_with(machines: Sequence[Machine]) -> Iterator[Bench]:
    """All of it in a new directory, gone afterwards."""
    with contextlib.ExitStack() as opened:
        home = opened.enter_context(
            tempfile.TemporaryDirectory(prefix="bench-", dir=os.environ.get("ASTRAEUS_LOCAL_DIRECTORY"))
        )
        stack = opened.enter_context(isolated_stack(Path(home)))
        access = Access.make(stack, machines=len(machines))
        for machine, token in zip(machines, access.join_tokens, strict=True):
            stack.start_agent(machine.name, machine.inventory, token=token, gpus=machine.gpus)
        api = opened.enter_context(
            httpx.Client(
                base_url=f"{access.url}/api/v1/o/{access.organization}/w/{access.workspace}",
                headers={"authorization": f"Bearer {access.token}"},
                timeout=30,
                trust_env=False,
            )
        )
        database = opened.enter_context(psycopg.connect(stack.env["DATABASE_URL"], autocommit=True))
        agents = [stack.processes[f"agent-{machine.name}"] for machine in machines]
        wait_until(lambda: _ready(database, len(machines)), seconds=60, what="the machines", needs=agents)
        yield Bench(stack, access, api, database)


def _ready(database: psycopg.Connection[tuple[Any, ...]], machines: int) -> bool:
    heard = database.execute(
        "SELECT count(*) FROM machines_machine WHERE last_seen_at IS NOT NULL"
    ).fetchone()
    return heard == (machines,)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` (0 to 1) of the values don't exceed."""
    ordered = sorted(values)
    rank = max(1, -(-len(ordered) * share // 1))
    return ordered[int(rank) - 1]


def unused_port() -> int:
    """A TCP port of this host that nothing uses, below those that the kernel gives to connections."""
    while True:
        port = random.randrange(20000, 29500)  # noqa: S311 - no secret
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
