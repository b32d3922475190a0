"""Probes of real workers: what they find is told, what they start ends, and a failure is the worker's."""

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.agent.agents import AgentProcess, alive, eventually, worker
from tests.agent.fake_console import FakeConsole
from wire.agent_messages import AssignmentReport, Exit
from wire.assignments import HttpTarget, Probe, Probes

pytestmark = pytest.mark.processes

LOOP = "echo up; while :; do sleep 0.05; done"
NEVER_TRAPPED = "trap 'echo told; exit 9' TERM; " + LOOP


def probe(script: str, **more: Any) -> Probe:
    facts = {"exec": ("bash", "-c", script), "period_seconds": 0.1, "timeout_seconds": 10, **more}
    return Probe(**{"failure_threshold": 1, **facts})


def texts(report: AssignmentReport) -> list[str]:
    """The worker's History, without the line about its sandbox."""
    return [note.text for note in report.notes if note.number]


def shows(console: FakeConsole, detail: str) -> AssignmentReport:
    def shown() -> AssignmentReport | None:
        report = console.report("a1")
        return report if report and report.detail == detail else None

    report: AssignmentReport = console.wait(shown, f"the detail {detail!r}")
    return report


# --- what they find


def test_a_failed_liveness_probe_fails_the_worker(console: FakeConsole, agent: AgentProcess) -> None:
    probes = Probes(liveness=probe("echo no; echo the port is closed >&2; exit 3", failure_threshold=3))
    console.want(worker(script=NEVER_TRAPPED, probes=probes))
    gone = console.wait_gone("a1")
    message = "liveness probe failed 3 times: exit 3: the port is closed"
    assert gone.exit == Exit(kind="probe_failed", code=9, message=message)
    assert texts(gone) == [
        "Liveness probe failed 3 times: exit 3: the port is closed; SIGTERM sent, SIGKILL follows after 30 s"
    ]
    assert console.wait_whole_log("a1") == "up\ntold\n"


def test_failures_count_only_in_a_row(console: FakeConsole, agent: AgentProcess) -> None:
    count = "n=$(cat /tmp/n 2>/dev/null || echo 0); echo $((n + 1)) > /tmp/n; echo probe $n >> /proc/1/fd/1"
    script = f"{count}; [ $((n % 2)) = 1 ]"
    console.want(worker(script=LOOP, probes=Probes(liveness=probe(script, failure_threshold=2))))
    console.wait_log("a1", "probe 6\n")
    assert console.report("a1").state == "running"


def test_the_startup_probe_comes_first_and_only_until_it_succeeds(
    console: FakeConsole, agent: AgentProcess
) -> None:
    probes = Probes(
        startup=probe("echo startup >> /tmp/order; [ -e /tmp/started ]", failure_threshold=1000),
        readiness=probe("echo readiness >> /tmp/order; [ -e /tmp/ready ]"),
        liveness=probe("echo liveness >> /tmp/order"),
    )
    console.want(worker(script=LOOP, probes=probes))
    shows(console, "Starting up")
    order = eventually(lambda: sandbox(agent, "order"), "the sandbox")
    eventually(lambda: lines(order).count("startup") >= 3, "three looks of the startup probe")
    assert set(lines(order)) == {"startup"}
    touch(agent, "started")
    shows(console, "Not ready: readiness probe failed 1 time: exit 1")
    eventually(lambda: lines(order).count("liveness") >= 3, "three looks of the liveness probe")
    others = [line for line in lines(order) if line != "startup"]
    assert lines(order)[-len(others) :] == others, "the startup probe is over when the others begin"

    touch(agent, "ready")
    assert texts(shows(console, "Ready")) == [
        "Startup probe succeeded",
        "Not ready: readiness probe failed 1 time: exit 1",
        "Ready",
    ]


def test_a_worker_that_never_starts_up_has_failed(console: FakeConsole, agent: AgentProcess) -> None:
    probes = Probes(startup=probe("exit 1", failure_threshold=2), liveness=probe("exit 2"))
    console.want(worker(script=NEVER_TRAPPED, probes=probes))
    message = "startup probe failed 2 times: exit 1"
    assert console.wait_gone("a1").exit == Exit(kind="probe_failed", code=9, message=message)


def test_readiness_comes_and_goes_and_stops_nothing(console: FakeConsole, agent: AgentProcess) -> None:
    script = f"echo first; sleep 0.5; touch /tmp/ready; sleep 0.5; rm /tmp/ready; {LOOP}"
    console.want(worker(script=script, probes=Probes(readiness=probe("ls /tmp/ready", failure_threshold=2))))
    missing = (
        "readiness probe failed 2 times: exit 2: ls: cannot access '/tmp/ready': No such file or directory"
    )
    shows(console, "Ready")
    report = shows(console, f"Not ready: {missing}")
    assert report.state == "running"
    assert texts(report)[-2:] == ["Ready", f"Not ready: {missing}"]


@pytest.fixture
def port() -> Iterator[int]:
    """One on which nothing listens."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        yield found.getsockname()[1]


def serve(port: int, status: int) -> tuple[str, ...]:
    """A server that answers so, as a command."""
    code = (
        "import http.server as h\n"
        "class H(h.BaseHTTPRequestHandler):\n"
        f"  def do_GET(self): self.send_response({status} if self.path == '/health?x=1' else 404); self.end_headers()\n"
        f"h.ThreadingHTTPServer(('127.0.0.1', {port}), H).serve_forever()"
    )
    return ("-c", code)


@pytest.mark.parametrize(("status", "detail"), [(204, "Ready"), (302, "Ready"), (503, None)])
def test_http(console: FakeConsole, agent: AgentProcess, status: int, detail: str | None) -> None:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    look = Probe(http=HttpTarget(port=port, path="/health?x=1"), period_seconds=0.1, failure_threshold=40)
    console.want(worker(command="python", args=serve(port, status), probes=Probes(readiness=look)))
    shows(console, detail or f"Not ready: readiness probe failed 40 times: port {port}: HTTP {status}")


def test_tcp(console: FakeConsole, agent: AgentProcess, port: int) -> None:
    refused = f"Not ready: readiness probe failed 1 time: port {port}: connection refused"
    look = Probe(tcp=port, period_seconds=0.1, failure_threshold=1)
    console.want(worker(script=LOOP, probes=Probes(readiness=look)))
    shows(console, refused)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        open_look = Probe(tcp=listener.getsockname()[1], period_seconds=0.1)
        console.want(worker("a2", script=LOOP, probes=Probes(readiness=open_look)))
        console.wait(lambda: (found := console.report("a2")) and found.detail == "Ready", "a2 is ready")


# --- what they start


def test_a_command_runs_as_the_worker_does(console: FakeConsole, agent: AgentProcess) -> None:
    facts = "echo $HOME $RUN_ID; pwd; cat /tmp/mine; hostname; id -u; cat /proc/1/comm"
    facts += "; grep -E '^Cap(Prm|Eff)|^NoNew' /proc/self/status; ls /proc/self/fd | wc -l"
    script = "echo private > /tmp/mine; exec -a python3 sleep 1000"
    look = probe(f"{{ {facts}; }} > /tmp/out 2>&1; cat /tmp/out >> /proc/1/fd/1; exit 0", period_seconds=1000)
    console.want(
        worker(script=script, probes=Probes(readiness=look), env={"RUN_ID": "r7"}, working_dir="/usr")
    )
    console.wait_log("a1", "NoNewPrivs:\t1\n4\n")
    assert console.log("a1").splitlines() == [
        "/tmp r7",
        "/usr",
        "private",
        "gpu-01",
        str(os.getuid()),
        "sleep",
        "CapPrm:\t0000000000000000",
        "CapEff:\t0000000000000000",
        "NoNewPrivs:\t1",
        "4",
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts workers as others")
def test_a_command_runs_as_the_workers_user(console: FakeConsole, agent: AgentProcess) -> None:
    look = probe('echo "$(id -u) $(id -G)"; exit 1', period_seconds=1000)
    console.want(
        worker(script="exec sleep 1000", command="/bin/bash", user="4321:99", probes=Probes(readiness=look))
    )
    shows(console, "Not ready: readiness probe failed 1 time: exit 1: 4321 99")


def test_a_command_that_takes_too_long_is_ended_with_all_that_it_started(
    console: FakeConsole, agent: AgentProcess
) -> None:
    script = "(setsid sleep 3141 &) ; setsid sleep 3141 & echo waiting; sleep 3141"
    console.want(
        worker(
            script="exec sleep 1000",
            probes=Probes(readiness=probe(script, timeout_seconds=0.5, period_seconds=60)),
        )
    )
    shows(console, "Not ready: readiness probe failed 1 time: no end within 0.5 s: waiting")
    eventually(lambda: not running("3141"), "the end of all that it started")
    assert alive(agent.record("a1")["child"])


def test_what_a_finished_command_leaves_behind_is_ended(console: FakeConsole, agent: AgentProcess) -> None:
    console.want(
        worker(
            script="exec sleep 1000",
            probes=Probes(readiness=probe("(setsid sleep 2718 &) ; exit 0", period_seconds=60)),
        )
    )
    shows(console, "Ready")
    assert running("2718") == []


def test_a_loud_command_costs_no_memory(console: FakeConsole, agent: AgentProcess) -> None:
    look = probe("head -c 50000000 /dev/zero | tr '\\0' x; echo; echo the end; exit 1", period_seconds=60)
    console.want(worker(script="exec sleep 1000", probes=Probes(readiness=look)))
    shows(console, "Not ready: readiness probe failed 1 time: exit 1: the end")


def running(argument: str) -> list[int]:
    """Processes of this machine with this word in their command line."""
    return [p.pid for p in psutil.process_iter(["cmdline"]) if argument in (p.info["cmdline"] or [])]


# --- agents that end


def test_an_agent_that_is_killed_takes_its_probe_along_and_the_next_one_goes_on(
    console: FakeConsole, agent: AgentProcess
) -> None:
    probes = Probes(
        startup=probe("echo startup >> /tmp/starts; true"),
        liveness=probe("[ -e /tmp/hang ] && sleep 1618; [ ! -e /tmp/sick ]", timeout_seconds=100),
    )
    script = f"trap 'cat /tmp/starts; exit 9' TERM; until [ -e /tmp/go ]; do sleep 0.05; done; touch /tmp/hang; {LOOP}"
    console.want(worker(script=script, probes=probes))
    console.wait(lambda: (found := console.report("a1")) and texts(found), "it has started up")
    touch(agent, "go")
    eventually(lambda: running("1618"), "a probe that hangs")
    agent.kill()
    eventually(lambda: not running("1618"), "the probe's end")
    assert alive(agent.record("a1")["child"])

    sandbox(agent, "hang").unlink()
    touch(agent, "sick")
    agent.start()
    gone = console.wait_gone("a1")
    message = "liveness probe failed 1 time: exit 1"
    assert gone.exit == Exit(kind="probe_failed", code=9, message=message)
    assert texts(gone)[-1] == "Startup probe succeeded"
    assert console.wait_whole_log("a1") == "up\nstartup\n", "it has started up once"


def test_a_verdict_outlives_the_agent(console: FakeConsole, agent: AgentProcess) -> None:
    """Killed between the verdict and the worker's end, the next agent tells the same."""
    script = f"trap '' TERM; {LOOP}"
    console.want(
        worker(script=script, stop_grace_seconds=1.5, probes=Probes(liveness=probe("echo sick; exit 4")))
    )
    watched = agent.directory("a1") / "watch.json"
    eventually(lambda: watched.exists() and "probe_failed" in watched.read_text(), "the verdict")
    agent.kill()
    agent.start()
    message = "liveness probe failed 1 time: exit 4: sick"
    assert console.wait_gone("a1").exit == Exit(kind="probe_failed", code=137, signal=9, message=message)


def test_a_stop_ends_probing_at_once(console: FakeConsole, agent: AgentProcess) -> None:
    look = probe("sleep 5772", timeout_seconds=100)
    console.want(worker(script=NEVER_TRAPPED, probes=Probes(liveness=look)))
    eventually(lambda: running("5772"), "a probe")
    ordered = time.monotonic()
    console.want(worker(script=NEVER_TRAPPED, probes=Probes(liveness=look), phase="stop"))
    assert console.wait_gone("a1").exit == Exit(kind="stopped", code=9)
    assert time.monotonic() - ordered < 10
    eventually(lambda: not running("5772"), "the probe's end")


def sandbox(agent: AgentProcess, name: str) -> Path:
    """A file in the worker's own /tmp, from outside."""
    return Path(f"/proc/{agent.record('a1')['child']}/root/tmp/{name}")


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def touch(agent: AgentProcess, name: str) -> None:
    sandbox(agent, name).touch()
