"""Drives over NFSv4: what is exported, what is mounted and unmounted, and why one can't be had.

Kernels of test machines have neither NFS's server nor its client. In their place stand `exportfs`, which notes that it
was called, and `mount`, which binds the directory that it is asked for; /etc/exports.d is the test's own.
"""

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.config import Config
from agent.exports import Exports
from agent.network_drives import NetworkDrives, mount_places
from agent.runtime import NotPrepared
from tests.agent.agents import AgentProcess, eventually, worker
from tests.agent.fake_console import FakeConsole
from wire.agent_messages import Exit
from wire.assignments import Export, NetworkMount

EXPORTFS = """#!/bin/sh
while [ -e "$FAKES/slow" ]; do sleep 0.05; done
[ ! -e "$FAKES/down" ]; found=$?
echo "$@" >> "$FAKES/exportfs.log"
exit $found
"""
MOUNT = """#!/bin/sh
echo "$@" >> "$FAKES/mount.log"
[ ! -e "$FAKES/denied" ] || { cat "$FAKES/denied" >&2; exit 32; }
exec /bin/mount --bind "${5#*:}" "$6"
"""
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts and exports")


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the programs are, and what they note."""
    place = tmp_path / "fakes"
    place.mkdir()
    for name, text in (("exportfs", EXPORTFS), ("mount", MOUNT)):
        (place / name).write_text(text)
        (place / name).chmod(0o755)
    monkeypatch.setenv("FAKES", str(place))
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    return place


@pytest.fixture
def root(tmp_path: Path) -> Path:
    drive = tmp_path / "drives" / "my data"
    (drive / "sets").mkdir(parents=True)
    (drive / "sets" / "train.txt").write_text("a sample\n")
    return tmp_path / "drives"


def config(tmp_path: Path, **more: Any) -> Config:
    (tmp_path / "state").mkdir(exist_ok=True)
    facts = {"server": "http://127.0.0.1", "credential": "c", "name": "gpu-01", "state": tmp_path / "state"}
    return Config(**{**facts, **more})


def calls(fakes: Path) -> int:
    """Of `exportfs`."""
    log = fakes / "exportfs.log"
    return log.read_text().count("-ra\n") if log.exists() else 0


def network(root: Path, **more: Any) -> NetworkMount:
    facts = {"drive": "imagenet", "source": str(root / "my data"), "mount_path": "/data"}
    return NetworkMount.model_validate({**facts, "machine": "gpu-02", "address": "10.0.0.2", **more})


def test_a_drive_is_exported_to_those_that_need_it_and_to_nobody_else(
    tmp_path: Path, root: Path, fakes: Path
) -> None:
    exports = Exports(config(tmp_path, drive_roots=(str(root),)), tmp_path / "exports.d")
    path = str(root / "my data")
    wanted = [
        Export(drive="imagenet", path=path, client="10.0.0.2"),
        Export(drive="imagenet", path=path, client="10.0.0.3", read_only=False),
        Export(drive="outside", path="/etc", client="10.0.0.2"),
    ]
    (fakes / "slow").touch()
    exports.apply(())
    exports.apply(wanted)
    exports.apply(wanted)
    file = eventually(lambda: next((tmp_path / "exports.d").glob("*.exports"), None), "it is written")
    assert not (fakes / "exportfs.log").exists(), "nobody waits for the server"
    (fakes / "slow").unlink()
    eventually(lambda: calls(fakes) == 1, "the server is told once")
    lines = [line.rpartition(",fsid=")[0] for line in file.read_text().splitlines()]
    quoted = f"{root}/my\\040data"
    assert lines == [
        f"{quoted} 10.0.0.2(ro,sync,no_subtree_check,no_root_squash",
        f"{quoted} 10.0.0.3(rw,sync,no_subtree_check,no_root_squash",
    ]

    again = Exports(config(tmp_path, drive_roots=(str(root),)), tmp_path / "exports.d")  # a restarted agent
    (fakes / "down").touch()
    again.apply([])
    eventually(lambda: calls(fakes) >= 2, "the server is told that they end")
    assert file.read_text() == "", "it may not have heard it"
    (fakes / "down").unlink()
    eventually(lambda: not file.exists(), "the server is told again, without another order")


def test_a_drive_that_comes_late_is_exported_without_another_order(
    tmp_path: Path, root: Path, fakes: Path
) -> None:
    exports = Exports(config(tmp_path, drive_roots=(str(root),)), tmp_path / "exports.d")
    late = root / "late"
    (fakes / "down").touch()
    exports.apply([Export(drive="late", path=str(late), client="10.0.0.2")])
    late.mkdir()
    eventually(lambda: calls(fakes) >= 2, "the server is down, and is told again")
    (fakes / "down").unlink()
    before = calls(fakes)
    eventually(lambda: calls(fakes) > before, "the server is told")
    [file] = (tmp_path / "exports.d").glob("*.exports")
    assert file.read_text().startswith(f"{late} 10.0.0.2(ro,")


@ROOT_ONLY
def test_a_mount_is_made_once_and_unmounted_with_what_earlier_agents_left(
    tmp_path: Path, root: Path, fakes: Path
) -> None:
    settings = config(tmp_path)
    drives, given_up = NetworkDrives(settings), threading.Event()
    assignment = worker("a1", network_mounts=(network(root), network(root, mount_path="/b", read_only=False)))
    [first, second] = mount_places(settings, assignment)
    drives.mount(assignment, given_up)
    drives.mount(assignment, given_up)
    assert (first / "sets" / "train.txt").read_text() == "a sample\n"
    options = "vers=4,proto=tcp,nosuid,nodev,retry=0"
    assert (fakes / "mount.log").read_text().splitlines() == [
        f"-t nfs -o {options},ro,softerr,timeo=300,retrans=3 10.0.0.2:{root}/my data {first}",
        f"-t nfs -o {options},rw,hard 10.0.0.2:{root}/my data {second}",
    ]

    NetworkDrives(settings).clean({"a1"})
    assert (first / "sets").exists(), "its worker is still there"
    NetworkDrives(settings).clean(set())
    assert not (tmp_path / "state" / "mounts" / "a1").exists()
    assert (root / "my data" / "sets" / "train.txt").exists()


def test_why_a_drive_of_another_machine_cannot_be_had(tmp_path: Path, root: Path, fakes: Path) -> None:
    drives = NetworkDrives(config(tmp_path))
    (fakes / "denied").write_text("mount.nfs: No route to host\n")
    with pytest.raises(NotPrepared) as caught:
        drives.mount(worker("a1", network_mounts=(network(root),)), threading.Event())
    assert str(caught.value) == (
        "The drive imagenet of gpu-02 can't be mounted on gpu-01: mount.nfs: No route to host. Check that the NFS "
        "server runs on gpu-02 and that its agent lets drives lie there."
    )
    assert len((fakes / "mount.log").read_text().splitlines()) == 1


@pytest.fixture
def agent(console: FakeConsole, tmp_path: Path, fakes: Path) -> Iterator[AgentProcess]:
    agent = AgentProcess(console, tmp_path / "state").join().start()
    yield agent
    agent.clean()
    NetworkDrives(config(tmp_path)).clean(set())


@ROOT_ONLY
@pytest.mark.processes
def test_a_worker_reads_a_drive_of_another_machine_as_soon_as_that_one_exports_it(
    console: FakeConsole, agent: AgentProcess, root: Path, fakes: Path, tmp_path: Path
) -> None:
    (fakes / "denied").write_text("mount.nfs: access denied by server while mounting\n")
    script = "cat /data/train.txt; touch /data/x 2>&1; true"
    wanted = worker("a1", script, network_mounts=(network(root, sub_path="sets"),))
    console.want(wanted)
    console.wait((fakes / "mount.log").exists, "it tries")
    assert console.report("a1").state == "preparing"
    (fakes / "denied").unlink()
    assert console.wait_whole_log("a1") == (
        "a sample\ntouch: cannot touch '/data/x': Read-only file system\n"
    )
    assert console.wait_gone("a1").exit == Exit(kind="exited", code=0)
    console.want()
    console.wait(lambda: console.observed and not console.observed.assignments, "it is forgotten")
    mounts = tmp_path / "state" / "mounts"
    console.wait(lambda: not list(mounts.iterdir()), "it is unmounted")


@pytest.mark.processes
def test_a_run_stopped_while_its_drive_is_awaited_ends_at_once(
    console: FakeConsole, agent: AgentProcess, root: Path, fakes: Path
) -> None:
    (fakes / "denied").write_text("mount.nfs: Connection refused\n")
    wanted = worker("a1", network_mounts=(network(root),), phase="prepare")
    console.want(wanted)
    console.wait((fakes / "mount.log").exists, "it tries")
    console.want(wanted.model_copy(update={"phase": "stop"}))
    assert console.wait_gone("a1").exit == Exit(kind="stopped", message="Stopped before it was started")


def test_exports_are_kept_with_the_desired_state() -> None:
    """A restarted agent goes on exporting what the console wants, before it has heard of it anew."""
    from wire.assignments import Desired

    desired = Desired(assignments=(worker(),), exports=(Export(path="/srv", client="10.0.0.2"),))
    assert json.loads(desired.stored().model_dump_json())["exports"][0]["path"] == "/srv"
