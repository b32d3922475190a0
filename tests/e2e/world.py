"""A whole console with two machines, as a person's curl and `astra` see it, and hands on its processes.

Its PostgreSQL and Redis are its own, so that tests can restart them too.
"""

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psycopg
import pytest
import redis

from console.local.client import Access
from console.local.instance import ROOT, exclusive
from console.local.postgres import Postgres
from console.local.processes import Process
from console.local.redis_server import RedisServer
from console.local.services import Services
from console.local.stack import Stack

T = TypeVar("T")
MACHINES = ("gpu-01", "gpu-02")
ENDED = {"Succeeded", "Failed", "Stopped"}
SECONDS = 30.0
"""How long anything may take; only a failing test ever waits so long."""

_OWNER = """
from tenancy.models import Organization, User
from tenancy.services import token_create
organization = Organization.objects.get()
made = token_create(
    user=User.objects.get(username="demo"), organization=organization, workspace=None, role="owner", name="e2e"
)
print(made.value)
"""


def eventually(
    condition: Callable[[], T | None], what: str | Callable[[], object], seconds: float = SECONDS
) -> T:
    """The condition's first true value."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds:g} s: {what() if callable(what) else what}")
        time.sleep(0.03)


def running(pid: int) -> bool:
    """Whether there is such a process, zombies aside."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@dataclass
class World:
    stack: Stack
    database: Postgres
    broker: RedisServer
    access: Access
    api: httpx.Client
    submitted: list[str] = field(default_factory=list)

    # --- the API

    def submit(self, document: Mapping[str, Any]) -> str:
        """The run's name."""
        answer = self.api.post("/runs", json=document)
        assert answer.status_code == 201, answer.text
        name: str = answer.json()["metadata"]["name"]
        self.submitted.append(name)
        return name

    def run(self, name: str) -> dict[str, Any]:
        answer = self.api.get(f"/runs/{name}")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.run(name)["status"]
        return found

    def wait(
        self, name: str, *states: str, attempt: int | None = None, seconds: float = SECONDS
    ) -> dict[str, Any]:
        """The run's status once it is in one of the states (of that attempt)."""

        def there() -> dict[str, Any] | None:
            status = self.status(name)
            over = status["state"] in ENDED and not ENDED & set(states)
            assert not over, f"{name} has ended before it was {states}: {status}"
            return status if status["state"] in states and attempt in (None, status["attempt"]) else None

        return eventually(there, lambda: f"{name} is {states}, it is {self.status(name)}", seconds)

    def wait_running(self, name: str) -> None:
        """The run's first attempt runs."""
        status = self.wait(name, "Running")
        assert status["attempt"] == 1, self.history(name)

    def stop(self, name: str, *, seconds: float = SECONDS) -> dict[str, Any]:
        """Stops the run; its status once it has stopped."""
        assert self.api.post(f"/runs/{name}/stop").status_code == 202
        return self.wait(name, "Stopped", seconds=seconds)

    def history(self, name: str) -> list[tuple[int, str, str]]:
        """(attempt, state, sentence) of the run's events, oldest first."""
        items = self.api.get(f"/runs/{name}/events").raise_for_status().json()["items"]
        return [(item["attempt"], item["state"], item["text"]) for item in items]

    def log(self, worker: str, **params: Any) -> str:
        """What of the worker's log the console has."""
        return self.api.get(f"/workers/{worker}/logs", params=params).raise_for_status().text

    def numbered_whole(self, worker: str) -> bool:
        """Whether the log is all that one process printed with NUMBERED: each line once, in order, to the end."""
        lines = self.whole_log(worker).splitlines()
        return lines == ["start", *(f"line {number}" for number in range(1, len(lines) - 1)), "end"]

    def whole_log(self, worker: str, **params: Any) -> str:
        """The log of a worker that is to end, once all of it has arrived."""
        return self.log(worker, follow="true", **params)

    def wait_lines(self, worker: str, count: int) -> None:
        """Returns when the console has so many lines of the worker's log."""
        eventually(lambda: self.log(worker).count("\n") >= count, f"{count} lines of {worker}")

    def clean(self, *, seconds: float = SECONDS) -> None:
        """Removes what the test has submitted."""
        names, self.submitted = self.submitted, []
        for name in names:
            self.api.delete(f"/runs/{name}")
        for name in names:
            gone = partial(self._gone, name)
            eventually(gone, f"{name} is gone", seconds)

    def _gone(self, name: str) -> bool:
        return self.api.get(f"/runs/{name}").status_code == 404

    @contextlib.contextmanager
    def owner(self) -> Iterator[httpx.Client]:
        """The organization's API, for an owner."""
        access, token = self.access, self.stack.manage("shell", "-v", "0", "-c", _OWNER).strip()
        with httpx.Client(
            base_url=f"{access.url}/api/v1/o/{access.organization}",
            headers={"authorization": f"Bearer {token}"},
            timeout=SECONDS,
            trust_env=False,
        ) as owner:
            yield owner

    # --- terminals

    def environ(self) -> dict[str, str]:
        """What a person has in the terminal, by the guide."""
        access = self.access
        return {
            **os.environ,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "API": f"{access.url}/api/v1/o/{access.organization}/w/{access.workspace}",
            "ASTRAEUS_SERVER": access.url,
            "ASTRAEUS_TOKEN": access.token,
            "ASTRAEUS_WORKSPACE": f"{access.organization}/{access.workspace}",
        }

    def shell(
        self, line: str, *, cwd: Path = ROOT, seconds: float = SECONDS
    ) -> subprocess.CompletedProcess[str]:
        """A line as a person types it into bash."""
        return subprocess.run(
            ["bash", "-c", f"set -o pipefail; {line}"],
            env=self.environ(),
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def astra(self, *arguments: str, seconds: float = SECONDS) -> str:
        """What `astra astraeus …` prints; it must succeed."""
        line = shlex.join([sys.executable, "-m", "astra", "astraeus", *arguments])
        done = self.shell(line, seconds=seconds)
        assert done.returncode == 0, done.stderr
        return done.stdout

    # --- what only the operator sees

    def sql(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Rows of a statement on the console's database."""
        with psycopg.connect(self.database.url(), autocommit=True) as connection:
            done = connection.execute(statement, parameters)
            return list(done.fetchall()) if done.description else []

    def assignments(self, name: str) -> list[tuple[int, str, str]]:
        """(attempt, worker, machine) of every assignment the run ever had."""
        return self.sql(
            "SELECT t.number, w.name, m.name FROM runs_assignment a JOIN runs_runattempt t ON t.id = a.attempt_id"
            " JOIN runs_worker w ON w.id = a.worker_id JOIN machines_machine m ON m.id = a.machine_id"
            " JOIN runs_run r ON r.id = t.run_id WHERE r.name = %s ORDER BY t.number, w.rank",
            name,
        )

    def directory(self, worker: str, attempt: int = 1) -> Path:
        """Where an agent keeps that worker's assignment."""
        for record in self.stack.agents.glob("*/assignments/*/assignment.json"):
            found = json.loads(record.read_text())
            if (found["worker"], found["attempt"]) == (worker, attempt):
                return record.parent
        raise FileNotFoundError(f"no agent has {worker} of attempt {attempt}")

    def processes(self, worker: str, attempt: int = 1) -> dict[str, int]:
        """The pids of a running worker: its `supervisor`, its sandbox `bwrap`, its main process `child`."""
        state = json.loads((self.directory(worker, attempt) / "state.json").read_text())
        return {name: state[name] for name in ("supervisor", "bwrap", "child")}

    def master_port(self, name: str) -> int:
        """29500, or the next that nothing on this host uses."""
        [(port,)] = self.sql(
            "SELECT t.master_port FROM runs_runattempt t JOIN runs_run r ON r.id = t.run_id WHERE r.name = %s",
            name,
        )
        assert 29500 <= port < 29600
        return int(port)

    def skip_backoff(self, name: str) -> None:
        """The run's back-off is over now."""
        self.sql("UPDATE runs_run SET not_before = now() WHERE name = %s AND not_before IS NOT NULL", name)

    # --- services

    def redis(self) -> redis.Redis:
        return redis.Redis.from_url(self.broker.url)

    def kill_redis(self) -> None:
        assert self.broker.process is not None
        self.broker.process.send(signal.SIGKILL)
        self.broker.process.popen.wait()

    def start_redis(self) -> None:
        """On the same port, with nothing of what it held."""
        assert self.broker.process is not None
        self.broker.process = Process.start(self.broker.process.command)

    def kill_postgres(self) -> None:
        """Ends the server and all its connections at once, without a checkpoint."""
        assert self.database.process is not None
        self.database.process.send(signal.SIGQUIT)
        self.database.process.popen.wait()

    def start_postgres(self) -> None:
        assert self.database.process is not None
        self.database.process = Process.start(self.database.process.command)
        eventually(self._database_answers, "PostgreSQL answers")

    def _database_answers(self) -> bool:
        with contextlib.suppress(psycopg.OperationalError):
            return self.sql("SELECT 1") == [(1,)]
        return False

    def mend(self) -> None:
        """Starts again what a failed test left ended."""
        if self.broker.process is not None and not self.broker.process.alive:
            self.start_redis()
        if self.database.process is not None and not self.database.process.alive:
            self.start_postgres()
        for name, process in list(self.stack.processes.items()):
            if process.alive:
                process.send(signal.SIGCONT)
            else:
                self.stack.restart(name)


@contextlib.contextmanager
def world(root: Path, inventories: Path) -> Iterator[World]:
    """Everything started, both machines ready."""
    with contextlib.ExitStack() as opened:
        instance = opened.enter_context(exclusive("e2e", root=root))
        database, broker = Postgres(instance, durable=False), RedisServer(instance)
        for server in (database, broker):
            opened.callback(server.stop)
            server.start()
        with psycopg.connect(database.url(), autocommit=True) as connection:
            # A server for tests loses the last commits when it is killed; one in production doesn't.
            connection.execute("ALTER ROLE CURRENT_USER SET synchronous_commit = on")
        stack = opened.enter_context(Stack(instance, Services(database.url(), broker.url)))
        access = Access.make(stack, machines=len(MACHINES))
        for name, token in zip(MACHINES, access.join_tokens, strict=True):
            stack.start_agent(name, inventories / f"{name}.json", token=token)
        api = opened.enter_context(
            httpx.Client(
                base_url=f"{access.url}/api/v1/o/{access.organization}/w/{access.workspace}",
                headers={"authorization": f"Bearer {access.token}"},
                timeout=SECONDS,
                trust_env=False,
            )
        )
        found = World(stack, database, broker, access, api)
        eventually(lambda: _machines_ready(found), "both machines have been heard")
        yield found


def _machines_ready(found: World) -> bool:
    heard = found.sql("SELECT name FROM machines_machine WHERE last_seen_at IS NOT NULL ORDER BY name")
    return heard == [(name,) for name in MACHINES]
