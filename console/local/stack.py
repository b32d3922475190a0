"""The console's processes together: uvicorn, two Celery workers, beat, and agents with simulated machines.

`./dev up`, the demo, the tests and the benchmarks start the same stack; the tests also kill parts of it.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import httpx
import psycopg
from psycopg import sql

from console.local import interruption
from console.local.errors import LocalError
from console.local.instance import ROOT, Instance, exclusive, write_private
from console.local.leftovers import end_processes_of
from console.local.processes import Command, Process, listen, stop_all, wait_until
from console.local.redis_server import RedisServer
from console.local.services import Services

_READY_SECONDS = 90.0  # generous: on a busy 2-core machine the imports alone take a while
_CELERY = ("-m", "celery", "-A", "console")
_QUEUES = {"place": "place", "react": "react,bulk"}
"""Worker to its queues (console/celery.py says what for)."""

# What an agent must not be handed: on a real machine none of it exists.
_NOT_FOR_AGENTS = (
    "DATABASE_URL",
    "REDIS_URL",
    "ASTRAEUS_SECRET_KEY",
    "ASTRAEUS_ENCRYPTION_KEY",
    "ASTRAEUS_OLD_ENCRYPTION_KEYS",
)


class Stack:
    """A console on given services, with everything of it in the instance's directory.

    As a context manager it returns when the console answers /readyz, and leaves no process behind. The
    processes are named `console`, `celery-place`, `celery-react`, `celery-beat` and `agent-<machine>`.
    """

    def __init__(
        self,
        instance: Instance,
        services: Services,
        *,
        port: int | None = None,
        reload: bool = False,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.instance = instance
        self._listener = listen(port)
        self.port: int = self._listener.getsockname()[1]
        self.reload = reload
        self.processes: dict[str, Process] = {}
        self.env = {**os.environ, **self._settings(services), **(env or {})}

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def agents(self) -> Path:
        """Holds one state directory per agent, named like its machine."""
        return self.instance.directory / "agents"

    def __enter__(self) -> Self:
        try:
            self.start()
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Starts everything but agents, on a migrated database, without waiting until it is ready.

        What can be is started together: Python's imports take the time, and the workers' run beside the migration.
        """
        (self.instance.directory / "static").mkdir(exist_ok=True)  # WhiteNoise warns of a missing one
        for queue in _QUEUES:
            self._start(f"celery-{queue}", _worker(queue))
        self.manage("migrate", "--no-input")
        self._start_console()
        self._start("celery-beat", self._beat())

    def watch(self) -> None:
        """Returns never; raises LocalError when a process ends by itself."""
        while True:
            for process in self.processes.values():
                if not process.alive:
                    raise process.ended()
            time.sleep(0.3)

    def stop(self) -> None:
        """Ends every process, those of workers included, which outlive their agent on purpose."""
        interruption.begin_end()
        self._listener.close()
        stop_all(list(self.processes.values()), seconds=8)
        end_processes_of(self.agents)

    def wait_ready(self) -> None:
        """Returns when the console answers and both Celery workers take tasks."""
        needs = [process for name, process in self.processes.items() if not name.startswith("agent-")]
        for path in ("/healthz", "/readyz"):
            wait_until(partial(self._answers, path), seconds=_READY_SECONDS, what=path, needs=needs)
        for queue in _QUEUES:
            takes_tasks = partial(_takes_tasks, self.processes[f"celery-{queue}"])
            wait_until(takes_tasks, seconds=_READY_SECONDS, what=f"celery-{queue}", needs=needs)

    def manage(self, *arguments: str) -> str:
        """Runs manage.py and returns what it printed; raises LocalError with its words when it fails."""
        result = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if result.returncode != 0:
            raise LocalError(f"manage.py {' '.join(arguments)} failed.\n{result.stdout}{result.stderr}")
        return result.stdout

    def join_agent(self, name: str, inventory: Path | None, token: str, *, gpus: Sequence[str] = ()) -> None:
        """Makes the machine known to the console: exchanges the join token for the agent's credential.

        `inventory` is what it pretends to have, None for what this host has; `gpus` are the only ones it offers.

        An agent that has joined before keeps its credential and is only told the console's present address.
        """
        state = self.agents / name
        if (state / "agent.json").exists():
            _point_agent(state / "agent.json", self.base_url)
            return
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        options = ["--server", self.base_url, "--token", token, "--name", name, "--state-dir", str(state)]
        options += ["--runtime", "bubblewrap", "--address", "127.0.0.1"]
        options += ["--simulate", str(inventory)] if inventory else []
        options += [part for gpu in gpus for part in ("--gpu", gpu)]
        # The console's secrets, the other agents' state; and those of the other set-ups of this clone.
        options += ["--hide", str(self.instance.directory.parent)]
        result = subprocess.run(
            [sys.executable, "-m", "agent", "join", *options],
            cwd=ROOT,
            env=self._agent_env(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode != 0:
            raise LocalError(f"The agent of {name} can't join.\n{result.stdout}{result.stderr}")

    def run_agent(self, name: str) -> Process:
        """Starts the agent of a machine that has joined."""
        return self._start(
            f"agent-{name}",
            ["-m", "agent", "run", "--state-dir", str(self.agents / name)],
            env=self._agent_env(),
        )

    def start_agent(
        self, name: str, inventory: Path | None, *, token: str, gpus: Sequence[str] = ()
    ) -> Process:
        self.join_agent(name, inventory, token, gpus=gpus)
        return self.run_agent(name)

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Sends the signal and, when it is SIGKILL, waits for the end."""
        process = self.processes[name]
        process.send(number)
        if number == signal.SIGKILL:
            process.popen.wait()

    def restart(self, name: str) -> Process:
        """Starts the process again as it was first started, ending it before when it still runs."""
        process = self.processes[name]
        if process.alive:
            process.stop()
        self.processes[name] = Process.start(process.command)
        return self.processes[name]

    def _settings(self, services: Services) -> dict[str, str]:
        return {
            **services.env,
            "ASTRAEUS_SECRET_KEY": self.instance.secret("django"),
            "ASTRAEUS_PUBLIC_URL": self.base_url,
            "ASTRAEUS_ALLOWED_HOSTS": "127.0.0.1,localhost",
            "ASTRAEUS_DEMO_LOGIN": "1",  # the sign-in links that are printed; nobody else reaches 127.0.0.1
            "ASTRAEUS_HASHED_STATIC": "0",  # served from their sources: nothing to collect first
            "ASTRAEUS_STATIC_ROOT": str(self.instance.directory / "static"),
            "PYTHONUNBUFFERED": "1",
        }

    def _agent_env(self) -> dict[str, str]:
        env = {name: value for name, value in os.environ.items() if name not in _NOT_FOR_AGENTS}
        # The workers' `torchrun` is the one of .venv.
        env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", os.defpath)])
        env["PYTHONUNBUFFERED"] = "1"
        return env

    def _start_console(self) -> None:
        """Hands the listening socket over. A console started again after a kill listens by itself."""
        again = self._command("console", ["-m", "console.local.web", str(self.port)])
        if self.reload:  # uvicorn's reloader starts servers of its own, with a socket of its own
            self._listener.close()
            options = ["--port", str(self.port), "--no-access-log", "--timeout-graceful-shutdown", "2"]
            first = again = self._command(
                "console", ["-m", "uvicorn", "console.asgi:application", "--reload", *options]
            )
        else:
            descriptor = self._listener.fileno()
            first = replace(again, argv=[*again.argv, str(descriptor)], keep_open=(descriptor,))
        process = self.processes["console"] = Process.start(first)
        process.command = again
        self._listener.close()

    def _beat(self) -> list[str]:
        schedule = self.instance.directory / "beat-schedule"
        schedule.unlink(missing_ok=True)  # half-written after a kill; the sweeps' times are not worth keeping
        return [*_CELERY, "beat", "--schedule", str(schedule), "--pidfile="]

    def _start(self, name: str, arguments: Sequence[str], *, env: Mapping[str, str] | None = None) -> Process:
        self.processes[name] = Process.start(self._command(name, arguments, env=env))
        return self.processes[name]

    def _command(
        self, name: str, arguments: Sequence[str], *, env: Mapping[str, str] | None = None
    ) -> Command:
        return Command(
            name=name,
            argv=[sys.executable, *arguments],
            cwd=ROOT,
            env=env or self.env,
            log=self.instance.logs / f"{name}.log",
        )

    def _answers(self, path: str) -> bool:
        try:
            return httpx.get(f"{self.base_url}{path}", timeout=5, trust_env=False).is_success
        except httpx.TransportError:
            return False


def _point_agent(file: Path, server: str) -> None:
    config = json.loads(file.read_text(encoding="utf-8"))
    write_private(file, json.dumps({**config, "server": server}))


def _worker(queue: str) -> list[str]:
    options = ["-P", "solo", "-l", "INFO", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    return [*_CELERY, "worker", "-Q", _QUEUES[queue], "-n", f"{queue}@local", *options]


def _takes_tasks(worker: Process) -> bool:
    return worker.has_written(" ready.")


@contextlib.contextmanager
def isolated_stack(root: Path, *, env: Mapping[str, str] | None = None) -> Iterator[Stack]:
    """A stack for tests and benchmarks: its own Redis, and an empty database on DATABASE_URL's server."""
    with contextlib.ExitStack() as stack:
        instance = stack.enter_context(exclusive("stack", root=root))
        broker = RedisServer(instance)
        stack.callback(broker.stop)
        broker.start()
        database_url = stack.enter_context(temporary_database(os.environ["DATABASE_URL"]))
        yield stack.enter_context(Stack(instance, Services(database_url, broker.url), env=env))


@contextlib.contextmanager
def temporary_database(url: str) -> Iterator[str]:
    """The address of a new, empty database on the same server; dropped afterwards, connections or not."""
    name = f"stack_{uuid.uuid4().hex[:12]}"
    identifier = sql.Identifier(name)
    with contextlib.closing(psycopg.connect(url, autocommit=True)) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(identifier))
        try:
            yield urlsplit(url)._replace(path=f"/{name}").geturl()
        finally:
            drop = sql.SQL("DROP DATABASE {} WITH (FORCE)").format(identifier)
            wait_until(
                partial(_dropped, connection, drop), seconds=60, what="autovacuum to leave the database"
            )


def _dropped(connection: psycopg.Connection, drop: sql.Composed) -> bool:
    """False while a worker of autovacuum is in there, which only a superuser may end."""
    try:
        connection.execute(drop)
    except psycopg.errors.InsufficientPrivilege:
        return False
    return True
