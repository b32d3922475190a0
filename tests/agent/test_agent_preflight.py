"""Checks before the start, with real agents and sandboxes: two machines on this host, a console for each."""

import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.agents import AgentProcess, alive, eventually, worker
from tests.agent.fake_console import FakeConsole
from wire.agent_messages import Exit
from wire.assignments import Assignment, Preflight

pytestmark = pytest.mark.processes

MACHINES = ("gpu-01", "gpu-02")
SECONDS = 60


class Pair:
    """Two machines, and a gang with a worker `a0` on the first and `a1` on the second."""

    def __init__(self, root: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.consoles = [FakeConsole().start() for _ in MACHINES]
        self.agents = [
            AgentProcess(console, root / name, name=name).join().start()
            for console, name in zip(self.consoles, MACHINES, strict=True)
        ]

    def want(self, rank: int, phase: str, kind: str, script: str = "echo started") -> None:
        preflight = Preflight(
            kind=kind,
            meets=True,
            machines=MACHINES,
            rank=rank,
            address="127.0.0.1",
            port=self.port,
            token="t",
        )
        assignment: Assignment = worker(
            f"a{rank}",
            script,
            phase=phase,
            rank=rank,
            preflight=preflight,
            rendezvous_port=None if rank else self.port,
        )
        self.consoles[rank].want(assignment)

    def all_want(self, phase: str, kind: str) -> None:
        for rank in range(len(MACHINES)):
            self.want(rank, phase, kind)

    def checkable(self, rank: int) -> None:
        console = self.consoles[rank]
        console.wait(
            lambda: (report := console.report(f"a{rank}")) and report.checkable_at, "it may check", SECONDS
        )

    def notes(self, rank: int) -> list[str]:
        report = self.consoles[rank].wait_state(f"a{rank}", "ready", seconds=SECONDS)
        return [note.text for note in report.notes if note.number >= 80]

    def clean(self) -> None:
        for agent in self.agents:
            agent.clean()
        for console in self.consoles:
            console.stop()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path)
    yield pair
    pair.clean()


def trial_processes(agent: AgentProcess, name: str) -> list[int]:
    """Those that run a program beside the worker: the helper works in its directory, the others are below it."""
    place = str((agent.directory(name) / "trial").resolve())
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (process / "cmdline").read_bytes().split(b"\0")
            inside = (process / "cwd").readlink() == Path(place)
        except OSError:
            continue
        if inside or place.encode() in arguments:
            found.append(int(process.name))
    return sorted(found)


def descendants(pids: list[int]) -> list[int]:
    parents = {}
    for process in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(process.parent.name)] = int(process.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = set(pids)
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found)


def test_an_all_reduce_over_two_machines_comes_before_the_start(pair: Pair) -> None:
    pair.all_want("prepare", "allreduce")
    for rank in range(2):
        pair.checkable(rank)
        report = pair.consoles[rank].report(f"a{rank}")
        assert (report.state, report.detail) == ("preparing", "Waiting for the others to check")
        assert not (pair.agents[rank].directory(f"a{rank}") / "launch").exists(), "nothing is created yet"
    pair.all_want("check", "allreduce")
    for rank in range(2):
        links, measured = pair.notes(rank)
        assert links == "Links checked: neither GPUs nor RDMA ports to look at"
        assert measured.startswith("All-reduce checked: ")
        assert measured.endswith(" GB/s bus bandwidth over 2 processes on 2 machines")
        assert not trial_processes(pair.agents[rank], f"a{rank}")
    pair.all_want("start", "allreduce")
    for rank in range(2):
        assert pair.consoles[rank].wait_whole_log(f"a{rank}") == "started\n"
        assert pair.consoles[rank].report(f"a{rank}").exit == Exit(kind="exited", code=0)


def test_an_agent_killed_in_the_middle_checks_anew_and_leaves_no_process(pair: Pair) -> None:
    pair.all_want("prepare", "links")
    pair.checkable(0)
    pair.checkable(1)
    pair.want(0, "check", "links")  # it waits for the other one, which isn't told yet
    started = eventually(lambda: trial_processes(pair.agents[0], "a0"), "the check runs", SECONDS)
    running = descendants(started)
    pair.agents[0].kill()
    eventually(lambda: not any(map(alive, running)), "nothing of it is left", SECONDS)

    pair.agents[0].start()
    pair.want(1, "check", "links")
    assert pair.notes(0)[1].startswith(
        f"Leader's address checked: 127.0.0.1:{pair.port} reached by all within "
    )
    assert len(pair.notes(1)) == 2


def test_a_stop_in_the_middle_leaves_no_process(pair: Pair) -> None:
    pair.want(0, "prepare", "links")
    pair.checkable(0)
    pair.want(0, "check", "links")
    running = descendants(
        eventually(lambda: trial_processes(pair.agents[0], "a0"), "the check runs", SECONDS)
    )
    pair.want(0, "stop", "links")
    assert pair.consoles[0].wait_gone("a0", SECONDS).exit == Exit(
        kind="stopped", message="Stopped before it was started"
    )
    assert not any(map(alive, running))


def test_a_member_that_is_killed_in_the_check_is_named_by_the_others(pair: Pair) -> None:
    pair.all_want("prepare", "allreduce")
    pair.checkable(0)
    pair.checkable(1)
    pair.all_want("check", "allreduce")
    helper = eventually(lambda: trial_processes(pair.agents[1], "a1"), "the other checks", SECONDS)
    measuring = eventually(
        lambda: [pid for pid in descendants(helper) if b'"step": "rank"' in environment(pid)],
        "it measures",
        SECONDS,
    )
    os.kill(helper[0], signal.SIGKILL)
    end = pair.consoles[0].wait_gone("a0", SECONDS).exit
    assert (end.kind, end.machines) == ("preflight_failed", ("gpu-02",))
    assert end.message == "The all-reduce check failed: gpu-02 left the check"
    eventually(lambda: not any(map(alive, measuring)), "nothing of it is left", SECONDS)
    assert pair.consoles[1].wait_gone("a1", SECONDS).exit.kind == "preflight_failed"


def environment(pid: int) -> bytes:
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return b""
    return next((each for each in variables if each.startswith(b"ASTRAEUS_PREFLIGHT=")), b"")


def test_a_port_that_went_down_after_the_placement_keeps_the_worker_from_starting(tmp_path: Path) -> None:
    console = FakeConsole().start()
    port = {"device": "mlx5_0", "port": 1, "link_layer": "InfiniBand", "state": "ACTIVE", "rate_gbps": 400}
    inventory = tmp_path / "machine.json"
    inventory.write_text(json.dumps({"rdma_ports": [port]}))
    agent = AgentProcess(console, tmp_path / "state").join(simulate=str(inventory)).start()
    try:
        wanted = Preflight(
            kind="links",
            machines=("gpu-01",),
            rank=0,
            address="127.0.0.1",
            port=29500,
            rdma_ports={"mlx5_0:1": 400},
        )
        console.want(worker("a1", preflight=wanted, rdma=True, phase="prepare"))
        report = console.wait_state("a1", "ready")
        assert report.notes[0].text == "Links checked (simulated): 1 RDMA port up at 400 Gb/s"

        inventory.write_text(json.dumps({"rdma_ports": [port | {"state": "DOWN"}]}))
        console.wait(lambda: console.observed.inventory.rdma_ports[0].state == "DOWN", "it is down")
        console.want(worker("a2", preflight=wanted, rdma=True, phase="prepare"))
        assert console.wait_gone("a2").exit == Exit(
            kind="preflight_failed", message="The link check failed: RDMA port mlx5_0:1 is DOWN"
        )
    finally:
        agent.clean()
        console.stop()
