"""A console on this host, and machines in namespaces of their own, each with its Docker engine and its agent."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx

from console.local.client import Access
from console.local.instance import exclusive
from console.local.postgres import Postgres
from console.local.redis_server import RedisServer
from console.local.services import Services
from console.local.stack import Stack
from tests.docker.engine import Engine
from tests.docker.spaces import Site, Space, run
from tests.e2e.world import World, eventually

ROOT = Path(__file__).parents[2]
_SECONDS = 60
# Listens where it was started, then goes over to the host's network and connects there.
_BRIDGE = """
import ctypes, os, socket, sys, threading
port, host = int(sys.argv[1]), os.open(sys.argv[2], os.O_RDONLY)
listener = socket.create_server(("127.0.0.1", port))
assert ctypes.CDLL(None, use_errno=True).setns(host, 0x40000000) == 0
print("listening", flush=True)

def carry(source, target):
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass

while True:
    ours, _ = listener.accept()
    theirs = socket.create_connection(("127.0.0.1", port))
    for pair in ((ours, theirs), (theirs, ours)):
        threading.Thread(target=carry, args=pair, daemon=True).start()
"""


@dataclass
class Machine:
    """One of the site's machines; the console is at the same loopback address as on the host."""

    name: str
    space: Space
    engine: Engine
    state: Path
    bridge: subprocess.Popen[str] | None = None
    agent: subprocess.Popen[bytes] | None = None

    def start(self, url: str, token: str) -> None:
        self._reach(int(url.rpartition(":")[2]))
        self.engine.start().load()
        socket = self.engine.url.removeprefix("unix://")
        options = ["--server", url, "--token", token, "--name", self.name, "--state-dir", str(self.state)]
        options += ["--runtime", "docker", "--docker-socket", socket, "--address", self.space.address]
        run(*self.space.inside(sys.executable, "-m", "agent", "join", *options))
        self.start_agent()

    def _reach(self, port: int) -> None:
        command = self.space.inside(sys.executable, "-c", _BRIDGE, str(port), f"/proc/{os.getpid()}/ns/net")
        self.bridge = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        assert self.bridge.stdout is not None
        assert self.bridge.stdout.readline() == "listening\n"

    def start_agent(self) -> None:
        command = self.space.inside(sys.executable, "-m", "agent", "run", "--state-dir", str(self.state))
        with (self.state / "agent.err").open("ab") as errors:
            self.agent = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stderr=errors)

    def kill_agent(self) -> None:
        assert self.agent is not None
        self.agent.kill()
        self.agent.wait(_SECONDS)

    def stop(self) -> None:
        if self.agent is not None:
            self.kill_agent()
        self.engine.stop()  # and with their containers the supervisors end
        if self.bridge is not None:
            assert self.bridge.stdout is not None
            self.bridge.kill()
            self.bridge.wait(_SECONDS)
            self.bridge.stdout.close()


@dataclass
class Whole:
    world: World
    machines: dict[str, Machine]


@contextlib.contextmanager
def whole(root: Path, site: Site, names: tuple[str, ...]) -> Iterator[Whole]:
    """Everything started, the machines heard."""
    with contextlib.ExitStack() as opened:
        instance = opened.enter_context(exclusive("e2e-docker", root=root))
        database, broker = Postgres(instance, durable=False), RedisServer(instance)
        for server in (database, broker):
            opened.callback(server.stop)
            server.start()
        stack = opened.enter_context(Stack(instance, Services(database.url(), broker.url)))
        access = Access.make(stack, machines=len(names))
        machines = {}
        for name, token in zip(names, access.join_tokens, strict=True):
            space = site.add()
            machines[name] = machine = Machine(name, space, Engine(space), root / name)
            opened.callback(machine.stop)
            machine.start(access.url, token)
        api = opened.enter_context(
            httpx.Client(
                base_url=access.api,
                headers={"authorization": f"Bearer {access.token}"},
                timeout=_SECONDS,
                trust_env=False,
            )
        )
        world = World(stack, database, broker, access, api)
        heard = "SELECT count(*) FROM machines_machine WHERE last_seen_at IS NOT NULL"
        eventually(lambda: world.sql(heard) == [(len(names),)], "all machines have been heard", _SECONDS)
        yield Whole(world, machines)
