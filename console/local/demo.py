"""`./dev demo`: the whole product on this machine, with a run that trains across two simulated machines."""

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from console.local import interruption
from console.local.client import ENDED, Access, Client
from console.local.errors import LocalError
from console.local.instance import ROOT, exclusive, write_private
from console.local.keeper import run_kept
from console.local.leftovers import end_processes_of
from console.local.report import Report
from console.local.services import Services, local_services
from console.local.stack import Stack

MACHINES = ("gpu-01", "gpu-02")
RUN = "demo"
IMAGE = ROOT / "worker_image"
PORT = 8000

_RUN_SECONDS = 600.0  # the demo's run takes well under a minute; its own time limit is this too
_STOP_SECONDS = 15.0
_RESULTS = ("all_reduce", "throughput")


def demo(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="./dev demo", description="The console, two machines and a run.")
    parser.add_argument("--once", action="store_true", help="end with the run, on a terminal too")
    parser.add_argument("--fresh", action="store_true", help="forget what earlier demos of this clone stored")
    options = parser.parse_args(arguments)
    stay = sys.stdout.isatty() and not options.once
    return run_kept(lambda: _demo(stay=stay, fresh=options.fresh))


def _demo(*, stay: bool, fresh: bool) -> int:
    report = Report()
    _require_sandboxes()
    with contextlib.ExitStack() as stack:
        instance = stack.enter_context(exclusive("demo"))
        end_processes_of(instance.directory / "agents")  # of a demo that was killed
        if fresh:
            instance.remove_data()
        with report.step("PostgreSQL and Redis answer"):
            services = stack.enter_context(local_services(instance, durable=True))
        console = Stack(instance, services, port=PORT)
        stack.callback(console.stop)
        with report.step("The database is migrated, the console's processes are started"):
            console.start()
        instance.note(command="demo", state="running", url=console.base_url)
        with report.step("An organization, a person and tokens are made"):
            access = Access.make(console, machines=len(MACHINES))
        with report.step("The console answers, Celery's workers take tasks"):
            console.wait_ready()
        client = stack.enter_context(_client(access))
        _start_machines(report, console, client, services, access)
        succeeded = _train(report, client)
        _tell_results(report, access, stay=stay)
        if stay:
            _stay(console)
    return 0 if succeeded else 1


def _require_sandboxes() -> None:
    """The machines' workers run in bubblewrap sandboxes; some systems allow them only to root, or not at all."""
    command = ["bwrap", "--ro-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "--dev", "/dev", "true"]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise LocalError(
            f"bubblewrap can't make a sandbox here: {result.stderr.strip()} "
            "It needs user namespaces (or root); in a container, run that container with --privileged."
        )


@contextlib.contextmanager
def _client(access: Access) -> Iterator[Client]:
    """At the end, however it comes, the runs are asked to stop while the agents are still there to do it."""
    client = Client(access)
    try:
        yield client
    finally:
        interruption.begin_end()
        with contextlib.suppress(httpx.TransportError, LocalError):
            client.stop_all()
            client.wait_all_ended(0 if interruption.hurried() else _STOP_SECONDS)
        client.close()


def _start_machines(
    report: Report, console: Stack, client: Client, services: Services, access: Access
) -> None:
    with report.step(f"The machines {' and '.join(MACHINES)} have joined"):
        client.stop_all()  # of a demo that was killed: they would be restarted now
        _forget_agents_of_other_data(console, services)
        inventories = [IMAGE / "demo" / f"{name}.json" for name in MACHINES]
        with ThreadPoolExecutor() as pool:
            list(pool.map(console.join_agent, MACHINES, inventories, access.join_tokens))
        for name in MACHINES:  # not from the pool: the kernel ends a process with the thread that started it
            console.run_agent(name)


def _forget_agents_of_other_data(console: Stack, services: Services) -> None:
    """The agents' credentials are worth something only with the database that issued them."""
    local = "DATABASE_URL" not in os.environ
    origin = console.instance.secret("database") if local else services.database_url
    mark = hashlib.sha256(origin.encode()).hexdigest()
    file = console.agents / "database"
    if not file.exists() or file.read_text(encoding="ascii") != mark:
        shutil.rmtree(console.agents, ignore_errors=True)
        console.agents.mkdir(mode=0o700)
        write_private(file, mark)


def document() -> dict[str, Any]:
    """worker_image/run.demo.json with the script attached, as the reference's jq line does it.

    Under a name of the demo's own: the document's own is left to whoever tries it beside the demo.
    """
    found: dict[str, Any] = json.loads((IMAGE / "run.demo.json").read_text(encoding="utf-8"))
    found["metadata"]["name"] = RUN
    script = (IMAGE / "train_ddp.py").read_text(encoding="utf-8")
    found["spec"]["task_template"]["configs"] = [{"mounts": ["/app/train_ddp.py"], "value": script}]
    return found


def _train(report: Report, client: Client) -> bool:
    """Submits the run and follows it to its end; True when it succeeded."""
    run = client.submit(document())
    name = run["metadata"]["name"]
    report.line(f"{name} submitted: {run['status']['url']}", style="bold")
    report.mark("The run is submitted")
    follower = _Follower(report, client, name)
    state = follower.follow_to_end()
    report.mark(f"The run has ended: {state}")
    return state == "Succeeded"


class _Follower:
    """Prints a run's states and the log of its worker 0, across restarts."""

    def __init__(self, report: Report, client: Client, name: str) -> None:
        self.report, self.client, self.name = report, client, name
        self.shown = ("", "")
        self.attempt, self.offset = 0, 0

    def follow_to_end(self) -> str:
        """Returns the final state; raises LocalError when the run takes far too long."""
        deadline = time.monotonic() + _RUN_SECONDS
        while True:
            status = self.client.run(self.name)["status"]
            self._show(status)
            if status["state"] in ENDED:
                self._copy_log(status)
                return str(status["state"])
            if status["state"] == "Running":
                self._copy_log(status)
            elif time.monotonic() > deadline:
                raise LocalError(f"{self.name} is still {status['state']}: {status['reason']}")
            time.sleep(0.1)

    def _show(self, status: dict[str, Any]) -> None:
        now = (status["state"], status["reason"])
        if now == self.shown:
            return
        self.shown = now
        self.report.line(f"{self.name}  {now[0]}  {now[1]}", style="cyan")
        if status["state"] not in ENDED:
            self.report.mark(f"The run is {status['state']}")

    def _copy_log(self, status: dict[str, Any]) -> None:
        """Prints what worker 0 writes until that attempt's log ends."""
        if not status["attempt"]:
            return
        if status["attempt"] != self.attempt:
            self.attempt, self.offset = status["attempt"], 0
        for line in self.client.follow(f"{self.name}-0", attempt=self.attempt, offset=self.offset):
            self.offset = line.next_offset
            result = line.text.startswith(_RESULTS)
            self.report.line(f"{self.name}-0 │ {line.text}", style="green" if result else "")
            if result:
                self.report.results.append(line.text)
                self.report.mark(f"The log shows {line.text.split()[0].rstrip(':')}")


def _tell_results(report: Report, access: Access, *, stay: bool) -> None:
    report.timeline()
    report.heading("Result")
    for line in report.results:
        report.fact("", line, style="green")
    report.heading("Console" if stay else "Console (ends now; on a terminal, or with ./dev up, it stays)")
    access.tell(report)
    if stay:
        report.heading("Ctrl-C ends the console, the machines and everything on them.")


def _stay(console: Stack) -> None:
    """Until Ctrl-C, or until a process of the stack ends by itself."""
    with contextlib.suppress(interruption.Interrupted):
        console.watch()
