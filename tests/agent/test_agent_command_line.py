"""`join`, `run` and `check` as a person uses them."""

import json
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.check import check, checks_table
from agent.discovery.checks import Check
from agent.main import main
from tests.agent.agents import ROOT, AgentProcess
from tests.agent.fake_console import CREDENTIAL, FakeConsole, Refusal

pytestmark = pytest.mark.processes

INVENTORY: dict[str, Any] = {
    "machine": {"cpu_cores": 96, "memory_bytes": 1 << 40},
    "gpus": [{"index": 0, "uuid": "GPU-0", "product": "NVIDIA H100 80GB HBM3", "memory_bytes": 80 << 30}],
    "rdma_ports": [
        {"device": "mlx5_0", "port": 1, "link_layer": "InfiniBand", "state": "ACTIVE", "rate_gbps": 400}
    ],
    "labels": {"topology.astraeus.io/rack": "r1"},
}


def join(console: FakeConsole, state: Path, *more: str) -> int:
    return main(["join", "--server", console.url, "--token", "t", "--state-dir", str(state), *more])


def test_join_keeps_the_credential_to_itself(
    console: FakeConsole, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inventory = tmp_path / "inventory.json"
    inventory.write_text(json.dumps(INVENTORY))
    state = tmp_path / "state"
    more = (
        "--name",
        "gpu-01",
        "--simulate",
        str(inventory),
        "--address",
        "10.20.0.11",
        "--hide",
        str(tmp_path),
        "--drive-root",
        str(tmp_path),
    )
    assert join(console, state, *more) == 0
    config = json.loads((state / "agent.json").read_text())
    assert config == {
        "server": console.url,
        "credential": CREDENTIAL,
        "name": "gpu-01",
        "cluster": "main",
        "runtime": "bubblewrap",
        "simulate": str(inventory),
        "address": "10.20.0.11",
        "hide": [str(tmp_path)],
        "docker_socket": "/run/docker.sock",
        "mesh": True,
        "mesh_port": 51820,
        "mesh_endpoint": None,
        "device_root": None,
        "drive_roots": [str(tmp_path)],
        "gpus": [],
    }
    assert stat.S_IMODE((state / "agent.json").stat().st_mode) == 0o600
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert capsys.readouterr().out.splitlines() == [
        "gpu-01 joined cluster main",
        f"Start it with: astraeus-agent run --state-dir {state}",
    ]


@pytest.mark.parametrize(
    ("refusal", "message"),
    [
        (
            Refusal(401, "This join token has expired."),
            (
                "The join token wasn't accepted: This join token has expired. "
                "Tokens are good for one use and one hour; make a new one."
            ),
        ),
        (
            Refusal(409, "Another machine has this name."),
            "The name gpu-01 is taken: Another machine has this name. Choose another with --name.",
        ),
        (Refusal(500), "The console refused: the console answered 500 Internal Server Error."),
    ],
)
def test_join_refused(
    console: FakeConsole, tmp_path: Path, capsys: pytest.CaptureFixture[str], refusal: Refusal, message: str
) -> None:
    console.join_refusal = refusal
    assert join(console, tmp_path, "--name", "gpu-01") == 1
    assert capsys.readouterr().err == f"astraeus-agent: {message}\n"
    assert not (tmp_path / "agent.json").exists()


def test_join_to_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    assert (
        main(["join", "--server", url, "--token", "t", "--name", "gpu-01", "--state-dir", str(tmp_path)]) == 1
    )
    assert capsys.readouterr().err == (
        f"astraeus-agent: {url} is out of reach: Connection refused. "
        "Is the console running there, and is the URL right?\n"
    )


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            ("--runtime", "docker", "--docker-socket", "/nosuch.sock"),
            (
                "The Docker engine of gpu-01 doesn't answer at /nosuch.sock: No such file or directory. "
                "Start it (systemctl start docker), or run `astraeus-agent check` there."
            ),
        ),
        (
            ("--name", "GPU 01"),
            (
                "GPU 01 can't be a machine's name: it takes lower-case letters, digits and `-`, at most 63. "
                "Give one with --name."
            ),
        ),
        (("--simulate", "/nosuch.json"), "/nosuch.json can't be read: No such file or directory."),
        (
            ("--server", "console"),
            "console is no URL of a console. It looks like https://console.example.com.",
        ),
    ],
)
def test_join_with_wrong_arguments_spends_no_token(
    console: FakeConsole,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    more: tuple[str, ...],
    message: str,
) -> None:
    assert join(console, tmp_path / "state", "--name", "gpu-01", *more) == 1
    assert capsys.readouterr().err == f"astraeus-agent: {message}\n"


def test_join_twice(console: FakeConsole, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert join(console, tmp_path, "--name", "gpu-01") == 0
    assert join(console, tmp_path, "--name", "gpu-01") == 1
    assert capsys.readouterr().err == (
        f"astraeus-agent: {tmp_path} already holds a joined agent. Start it with `astraeus-agent run --state-dir "
        f"{tmp_path}`, or remove {tmp_path}/agent.json to join anew.\n"
    )


def test_plain_http_to_another_machine_is_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [
        "join",
        "--server",
        "http://console.invalid",
        "--token",
        "t",
        "--name",
        "a",
        "--state-dir",
        str(tmp_path),
    ]
    assert main(command) == 1
    assert capsys.readouterr().err.startswith("warning: http://console.invalid is not encrypted;")


def test_run_without_join(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--state-dir", str(tmp_path)]) == 1
    assert capsys.readouterr().err == (
        f"astraeus-agent: {tmp_path} holds no agent. Run `astraeus-agent join --server URL --token TOKEN "
        f"--state-dir {tmp_path}`.\n"
    )


def test_run_with_a_damaged_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "agent.json").write_text('{"server": "http://127.0.0.1"}')
    assert main(["run", "--state-dir", str(tmp_path)]) == 1
    assert capsys.readouterr().err == (
        f"astraeus-agent: {tmp_path}/agent.json is damaged (credential, name). Remove it and join again.\n"
    )


def test_join_and_run_in_one(console: FakeConsole, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "agent", "join", "--server", console.url, "--token", "t"]
    command += ["--name", "gpu-07", "--state-dir", str(tmp_path), "--run"]
    agent = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        console.wait(lambda: console.observed, "the first observation", 30)
    finally:
        agent.terminate()
        out, err = agent.communicate(timeout=15)
    assert (agent.returncode, out) == (0, "gpu-07 joined cluster main\n")
    assert all(line.split()[1] in ("INFO", "WARNING") for line in err.splitlines())


def test_a_real_machine_reports_what_it_has(console: FakeConsole, agent: AgentProcess) -> None:
    observed = console.wait(lambda: console.observed, "the observation")
    assert observed.inventory.cpu_cores == os.cpu_count()
    assert observed.inventory.gpus == ()
    assert observed.inventory.runtime_version.startswith("bubblewrap ")
    assert (
        observed.inventory.limits[0]
        == "bubblewrap limits neither the memory nor the processor time of a worker."
    )
    assert (console.requests[0].simulated, console.requests[0].address) == (False, "127.0.0.1")


def test_a_simulated_port_that_goes_down_is_reported(console: FakeConsole, tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.json"
    inventory.write_text(json.dumps(INVENTORY))
    agent = (
        AgentProcess(console, tmp_path / "state").join(simulate=str(inventory), address="10.20.0.11").start()
    )
    try:
        observed = console.wait(lambda: console.observed, "the observation")
        assert (observed.inventory.cpu_cores, observed.inventory.gpus[0].uuid) == (96, "GPU-0")
        assert observed.inventory.labels == {"topology.astraeus.io/rack": "r1"}
        assert (console.requests[0].simulated, console.requests[0].address) == (True, "10.20.0.11")
        inventory.write_text("{")  # as an editor may leave it for a moment
        down = {**INVENTORY, "rdma_ports": [{**INVENTORY["rdma_ports"][0], "state": "DOWN"}]}
        inventory.write_text(json.dumps(down))
        console.wait(
            lambda: console.observed and console.observed.inventory.rdma_ports[0].state == "DOWN",
            "the port's state",
        )
    finally:
        agent.clean()


def test_check_on_this_machine(console: FakeConsole, tmp_path: Path) -> None:
    join(console, tmp_path, "--name", "gpu-01")
    found = {one.what: one for one in check(tmp_path)}
    of_every_machine = [
        *("bubblewrap", "sandbox", "python", "kernel", "memory", "/dev/shm", "locked memory", "GPU driver"),
        *("fabric manager", "GPUDirect RDMA", "RDMA ports", "rendezvous port", "joined", "console", "clock"),
    ]
    assert [what for what in found if what in of_every_machine] == of_every_machine
    assert found["sandbox"] == Check("sandbox", "ok", "can be made")
    assert found["joined"].found == f"gpu-01 at {console.url}"
    assert found["clock"] == Check("clock", "ok", "agrees with the console's")


def test_check_without_bubblewrap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["check", "--state-dir", str(tmp_path)]) == 1
    table = capsys.readouterr().out.splitlines()
    assert table[0].split() == ["what", "found", "to", "do"]
    assert table[1].split() == [
        "bubblewrap",
        "missing",
        "not",
        "installed",
        "install",
        "the",
        "package",
        "bubblewrap",
    ]


def test_the_table_is_aligned() -> None:
    checks = [
        Check("python", "ok", "3.11"),
        Check("bubblewrap", "missing", "not installed", "apt-get install bubblewrap"),
    ]
    assert checks_table(checks) == (
        "what                 found          to do\n"
        "python      ok       3.11\n"
        "bubblewrap  missing  not installed  apt-get install bubblewrap"
    )


def test_drives_cannot_lie_anywhere(
    console: FakeConsole, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert join(console, tmp_path / "state", "--drive-root", "/") == 1
    assert capsys.readouterr().err == (
        "astraeus-agent: Drives can't lie anywhere: give --drive-root a directory of theirs, such as /data.\n"
    )
