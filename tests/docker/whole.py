"""A console on this host, and machines in namespaces of their own, each with its Docker engine and its agent.

Agents reach the console over their machine's cable, so that a machine whose cable is pulled is away for everybody.
"""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from console.local.client import Access
from console.local.instance import exclusive
from console.local.postgres import Postgres
from console.local.redis_server import RedisServer
from console.local.services import Services
from console.local.stack import Stack
from tests.docker.engine import Engine
from tests.docker.image import image_archive
from tests.docker.machines import containers
from tests.docker.spaces import Site, Space
from tests.e2e.world import World, eventually

ROOT = Path(__file__).parents[2]
SECONDS = 240
"""How long anything may take here; only a failing test ever waits so long."""
# The console listens on this host's loopback alone.
_RELAY = """
import asyncio, contextlib, sys
here, port = sys.argv[1], int(sys.argv[2])

async def carry(reader, writer):
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()

async def meet(reader, writer):
    try:
        there, thither = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        writer.close()
        return
    await asyncio.gather(carry(reader, thither), carry(there, writer))

async def main():
    server = await asyncio.start_server(meet, here, port)
    print("listening", flush=True)
    await server.serve_forever()

asyncio.run(main())
"""


@contextlib.contextmanager
def relay(address: str, port: int) -> Iterator[None]:
    """The console is also at `address`, at the same port."""
    command = [sys.executable, "-c", _RELAY, address, str(port)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "listening\n"
        yield
    finally:
        process.kill()
        process.wait(SECONDS)
        process.stdout.close()


@dataclass
class Machine:
    """One of the site's machines."""

    name: str
    space: Space
    engine: Engine
    state: Path
    agent: subprocess.Popen[bytes] | None = None

    def join(self, url: str, token: str, drive_roots: Sequence[Path]) -> None:
        socket = self.engine.url.removeprefix("unix://")
        options = ["--server", url, "--token", token, "--name", self.name, "--state-dir", str(self.state)]
        options += ["--runtime", "docker", "--docker-socket", socket, "--address", self.space.address]
        options += [part for root in drive_roots for part in ("--drive-root", str(root))]
        command = self.space.inside(sys.executable, "-m", "agent", "join", *options)
        joined = subprocess.run(
            command,
            cwd=ROOT,
            env=_environment(),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert joined.returncode == 0, joined.stderr

    def start_agent(self, **variables: str) -> None:
        """With these besides the variables that it has here."""
        given = [f"{name}={value}" for name, value in variables.items()]
        agent = [sys.executable, "-m", "agent", "run", "--state-dir", str(self.state)]
        command = self.space.inside("env", *given, *agent)
        with (self.state / "agent.err").open("ab") as errors:
            self.agent = subprocess.Popen(
                command, cwd=ROOT, env=_environment(), stdin=subprocess.DEVNULL, stderr=errors
            )

    def kill_agent(self) -> None:
        assert self.agent is not None
        self.agent.kill()
        self.agent.wait(SECONDS)

    def stop(self) -> None:
        if self.agent is not None:
            self.kill_agent()
        self.engine.stop()  # and with their containers the supervisors end


def _environment() -> dict[str, str]:
    """Without a proxy, which would not lead to the site's switch."""
    return {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}


@dataclass
class Whole:
    world: World
    machines: dict[str, Machine]
    drives: dict[str, Path] = field(default_factory=dict)

    def drive(self, name: str, path: Path, *, access: str) -> None:
        """A drive that all machines have at `path`, for the demo's workspace."""
        order = {"name": name, "kind": "shared", "path": str(path)}
        access_of = {self.world.access.workspace: access}
        with self.world.owner() as owner:
            address = f"/clusters/{self.world.access.cluster}/drives"
            answer = owner.post(address, json={**order, "workspaces": access_of})
        assert answer.status_code == 201, answer.text
        self.drives[name] = path

    def silent_for(self, machine: str, seconds: float) -> None:
        """The console has not heard of the machine for so long, as far as it can tell.

        How long a silence may last is no setting: the console's clock is moved instead.
        """
        [(number,)] = self.world.sql("SELECT id FROM machines_machine WHERE name = %s", machine)
        self.world.redis().set(f"astraeus:seen:{number}", time.time() - seconds)
        away = "SELECT 1 FROM machines_machine WHERE id = %s AND unreachable_at IS NOT NULL"
        eventually(lambda: self.world.sql(away, number), f"{machine} is unreachable", SECONDS)
        back = (
            "UPDATE machines_machine SET unreachable_at = unreachable_at - %s * interval '1 s' WHERE id = %s"
        )
        self.world.sql(back, seconds, number)

    def wait_ready(self, *names: str) -> None:
        """Heard, on the mesh, and reachable."""
        ready = (
            "SELECT count(*) FROM machines_machine WHERE name = ANY(%s) AND last_seen_at IS NOT NULL"
            " AND unreachable_at IS NULL AND mesh_number IS NOT NULL AND mesh_key <> '' AND mesh_flaw = ''"
        )
        wanted = [(len(names),)]
        eventually(lambda: self.world.sql(ready, list(names)) == wanted, f"{names} are ready", SECONDS)

    def containers(self) -> dict[str, list[str]]:
        """Of each machine whose engine has any."""
        found = {name: containers(machine.engine) for name, machine in self.machines.items()}
        return {name: names for name, names in found.items() if names}


@contextlib.contextmanager
def whole(root: Path, names: tuple[str, ...], drive_roots: Sequence[Path]) -> Iterator[Whole]:
    """Everything started, the machines ready."""
    with contextlib.ExitStack() as opened:
        site = opened.enter_context(contextlib.closing(Site().open()))
        machines = {name: _machine(name, site.add(), root) for name in names}
        for machine in machines.values():
            opened.callback(machine.stop)
        image_archive()  # made once, before all of them want it
        with ThreadPoolExecutor() as pool:
            started = [pool.submit(lambda m=m: m.engine.start().load()) for m in machines.values()]  # type: ignore[misc]
            world = opened.enter_context(_console(root, site, len(names)))
            for engine in started:
                engine.result()
        url = f"http://{site.address}:{world.stack.port}"
        for machine, token in zip(machines.values(), world.access.join_tokens, strict=True):
            machine.join(url, token, drive_roots)
            machine.start_agent()
        found = Whole(world, machines)
        found.wait_ready(*names)
        yield found


def _machine(name: str, space: Space, root: Path) -> Machine:
    return Machine(name, space, Engine(space), root / name)


@contextlib.contextmanager
def _console(root: Path, site: Site, machines: int) -> Iterator[World]:
    """The real one, with a PostgreSQL and a Redis of its own, which agents of the site reach."""
    with contextlib.ExitStack() as opened:
        instance = opened.enter_context(exclusive("e2e-docker", root=root))
        database, broker = Postgres(instance, durable=False), RedisServer(instance)
        for server in (database, broker):
            opened.callback(server.stop)
            server.start()
        hosts = {"ASTRAEUS_ALLOWED_HOSTS": f"127.0.0.1,localhost,{site.address}"}
        stack = opened.enter_context(Stack(instance, Services(database.url(), broker.url), env=hosts))
        opened.enter_context(relay(site.address, stack.port))
        access = Access.make(stack, machines=machines)
        api = opened.enter_context(
            httpx.Client(
                base_url=access.api,
                headers={"authorization": f"Bearer {access.token}"},
                timeout=SECONDS,
                trust_env=False,
            )
        )
        yield World(stack, database, broker, access, api)
