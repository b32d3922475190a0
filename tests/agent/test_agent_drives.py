"""Drives: what a worker sees of them, what leads out of them, and why one can't be had."""

import ctypes
import errno
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent import beneath
from agent.bubblewrap import Bubblewrap
from agent.config import Config
from agent.drives import Drive, drives_find, drives_of, in_time
from agent.journal import Journal
from agent.launching import Places
from agent.runtime import NotPrepared
from agent.supervision.mounts import mounts_wrong
from tests.agent.agents import ROOT, AgentProcess, eventually, worker
from tests.agent.fake_console import FakeConsole
from wire.agent_messages import Exit
from wire.assignments import Assignment, DriveMount, FileMount


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where drives may lie, with one called data in it."""
    drive = tmp_path / "drives" / "data"
    (drive / "sets" / "v2").mkdir(parents=True)
    (drive / "sets" / "v2" / "train.txt").write_text("a sample\n")
    (drive / "sets" / "latest").symlink_to("v2")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "private").write_text("private\n")
    (drive / "escape").symlink_to(tmp_path / "outside")
    (drive / "sets" / "up").symlink_to("../../../outside")
    return tmp_path / "drives"


@pytest.fixture
def agent(console: FakeConsole, tmp_path: Path, root: Path) -> Iterator[AgentProcess]:
    agent = AgentProcess(console, tmp_path / "state").join(drive_roots=[str(root)]).start()
    yield agent
    agent.clean()


def mount(root: Path, path: str = "/data", **more: Any) -> DriveMount:
    return DriveMount(**{"drive": "imagenet", "source": str(root / "data"), "mount_path": path, **more})


def mounted(script: str, *mounts: DriveMount, **more: Any) -> Assignment:
    return worker(script=script, **{"mounts": mounts, **more})


def output(console: FakeConsole) -> str:
    end = console.wait_gone("a1").exit
    text: str = console.wait_whole_log("a1")
    assert end == Exit(kind="exited", code=0), f"{end} {text}"
    return text


@pytest.mark.processes
def test_a_drive_is_read_where_the_machine_has_no_such_directory(
    console: FakeConsole, agent: AgentProcess, root: Path
) -> None:
    script = "cat /train/set/sets/v2/train.txt; touch /train/set/x 2>&1; touch /train/x 2>&1; true"
    console.want(mounted(script, mount(root, "/train/set")))
    assert output(console) == (
        "a sample\n"
        "touch: cannot touch '/train/set/x': Read-only file system\n"
        "touch: cannot touch '/train/x': Read-only file system\n"
    )
    assert not Path("/train").exists()


@pytest.mark.processes
def test_a_drive_is_written_and_mounted_over_a_directory_of_the_machine(
    console: FakeConsole, agent: AgentProcess, root: Path
) -> None:
    script = "ls /mnt; echo result > /mnt/out.txt; ls /var/tmp/in/tmp/sets"
    console.want(
        mounted(script, mount(root, "/mnt", read_only=False), mount(root, "/var/tmp/in/tmp", drive="again"))
    )
    assert output(console) == "escape\nsets\nlatest\nup\nv2\n"
    assert (root / "data" / "out.txt").read_text() == "result\n"


@pytest.mark.processes
def test_a_sub_path_alone_through_a_link_that_stays_inside(
    console: FakeConsole, agent: AgentProcess, root: Path
) -> None:
    console.want(mounted("ls /data; ls /data/..", mount(root, sub_path="sets/latest")))
    text = output(console)
    assert text.startswith("train.txt\n")
    assert "private" not in text


@pytest.mark.processes
def test_a_drive_outlives_its_worker_and_a_config_lies_beside_it(
    console: FakeConsole, agent: AgentProcess, root: Path
) -> None:
    files = (FileMount(path="/data/config.yaml", value="x: 1\n"),)
    script = "cat /data/config.yaml; mkdir /data/out/run; echo 1 > /data/out/run/step"
    console.want(mounted(script, mount(root, "/data/out", read_only=False), files=files))
    assert output(console) == "x: 1\n"
    console.want()
    console.wait(lambda: console.observed and not console.observed.assignments, "it is forgotten")
    assert (root / "data" / "run" / "step").read_text() == "1\n"


@pytest.mark.processes
def test_other_drives_are_out_of_sight(console: FakeConsole, tmp_path: Path) -> None:
    """A sandbox shows the machine's own files; those of other workspaces' drives are not among them."""
    place = Path(tempfile.mkdtemp(prefix=".drives-", dir=ROOT.resolve()))  # /tmp is private anyway
    for name in ("data", "other"):
        (place / name).mkdir()
        (place / name / "file").write_text(name)
    agent = AgentProcess(console, tmp_path / "state").join(drive_roots=[str(place)]).start()
    try:
        console.want(
            mounted(f"cat /data/file {place}/in/file; ls {place}", mount(place), mount(place, f"{place}/in"))
        )
        assert output(console) == "datadatain\n"
    finally:
        agent.clean()
        shutil.rmtree(place)


def config(root: Path, **more: Any) -> Config:
    return Config(
        server="http://127.0.0.1",
        credential="c",
        name="gpu-01",
        **{"state": Path("/var/lib/agent"), "drive_roots": (str(root),), **more},
    )


def refused(settings: Config, wanted: DriveMount) -> str:
    with pytest.raises(NotPrepared) as caught:
        drives_find(settings, [wanted])
    return str(caught.value)


@pytest.mark.parametrize("sub_path", ["escape", "escape/deeper", "sets/up", "../..", "sets/../../.."])
def test_nothing_leads_out_of_a_drive(root: Path, sub_path: str) -> None:
    shown = f"{root}/data/{sub_path}"
    assert refused(config(root), mount(root, sub_path=sub_path)) == (
        f"The drive imagenet can't be used on gpu-01: {shown} leads out of it, through a symbolic link or `..`."
    )


def test_a_path_that_is_renamed_under_the_look_is_looked_at_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel gives up on a ".." while anything is renamed, and wants to be asked again."""
    tries: list[int] = []

    class Disturbed:
        def syscall(self, *arguments: Any) -> int:
            tries.append(1)
            if len(tries) < 3:
                ctypes.set_errno(errno.EAGAIN)
                return -1
            found: int = libc.syscall(*arguments)
            return found

    libc = beneath._libc
    monkeypatch.setattr(beneath, "_libc", Disturbed())
    top = os.open(root, os.O_PATH)
    found = beneath.open_beneath(top, "data/sets/latest")
    assert os.path.samestat(os.fstat(found), (root / "data/sets/v2").stat())
    os.close(found)
    os.close(top)


def test_why_a_drive_cannot_be_used(root: Path, tmp_path: Path) -> None:
    lead = "The drive imagenet can't be used on gpu-01:"
    (root / "data" / "file").touch()
    gone = mount(root, source=str(root / "nosuch"))
    assert refused(config(root), gone) == f"{lead} {root}/nosuch is not there."
    assert refused(config(root), mount(root, sub_path="x")) == f"{lead} {root}/data/x is not there."
    assert refused(config(root), mount(root, sub_path="file")) == f"{lead} {root}/data/file is no directory."
    elsewhere = mount(root, source=str(tmp_path / "outside"))
    assert refused(config(root), elsewhere) == (
        f"The drive imagenet lies at {tmp_path}/outside, which the agent of gpu-01 doesn't let drives use. "
        f'To allow it, add "drive_roots": ["{tmp_path}"] to agent.json there and restart the agent.'
    )
    sly = mount(root, source=f"{root}/data/../../outside")
    assert "doesn't let drives use" in refused(config(root), sly)
    linked = mount(root, source=f"{root}/data/escape")
    assert refused(config(root), linked).endswith("leads out of it, through a symbolic link or `..`.")
    state = config(root, state=root / "data" / "agent")
    assert refused(state, mount(root)) == (
        f"{lead} {root}/data holds what the agent keeps from workers ({root}/data/agent)."
    )
    assert "line break" in refused(config(root), mount(root, sub_path="a\nb"))


@pytest.fixture
def small(root: Path) -> Iterator[Path]:
    """A drive of 2 MiB on a file system of its own."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    drive = root / "small"
    drive.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", drive], check=True)
    yield drive
    subprocess.run(["umount", "--lazy", drive], check=True)


def test_a_full_drive(root: Path, small: Path) -> None:
    wanted = mount(root, source=str(small), read_only=False)
    assert drives_find(config(root), [wanted])[0].bind.source == str(small)
    (small / "big").write_bytes(b"x" * (1536 << 10))
    assert refused(config(root), wanted) == (
        "The drive imagenet is full on gpu-01: less than 1 MiB is left. Make room on it."
    )
    assert drives_find(config(root), [mount(root, source=str(small))]), "for reading it is good enough"


def test_a_drive_that_is_read_only_on_the_machine(root: Path, small: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", small], check=True)
    assert refused(config(root), mount(root, source=str(small), read_only=False)) == (
        "The drive imagenet can't be written on gpu-01: its file system is mounted read-only there. "
        "Set `read_only`, or choose another drive."
    )


def test_a_drive_whose_file_server_is_dead(root: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "dead")

    def hang(_config: Config, _mount: DriveMount) -> str:
        return (tmp_path / "dead").read_text()

    with pytest.raises(NotPrepared) as caught:
        in_time(config(root), mount(root), hang, seconds=0.2)
    (tmp_path / "dead").write_text("ends the thread")
    assert str(caught.value) == (
        f"The drive imagenet doesn't answer on gpu-01: nothing came from {root}/data within 0 s. "
        "Its file server may be down."
    )


@pytest.mark.processes
@pytest.mark.parametrize(
    ("mounts", "files", "message"),
    [
        (
            (("/data", {}), ("/data/in", {"drive": "other"})),
            (),
            "The drive other at /data/in lies below the drive imagenet at /data. Give one of them another path.",
        ),
        (
            (("/data", {}),),
            ("/data/config",),
            "The config /data/config lies below the drive imagenet at /data. Give one of them another path.",
        ),
        (
            (("/etc/passwd", {}),),
            (),
            (
                "The drive imagenet at /etc/passwd can't be mounted: this machine has a file there. "
                "Mount it at another path, such as /data."
            ),
        ),
        (
            (("/proc/data", {}),),
            (),
            "The drive imagenet at /proc/data can't be mounted: /proc belongs to the system.",
        ),
        (
            (("/data", {"sub_path": "escape"}),),
            (),
            (
                "The drive imagenet can't be used on gpu-01: {root}/data/escape leads out of it, through a "
                "symbolic link or `..`."
            ),
        ),
    ],
)
def test_mounts_that_cannot_be(
    console: FakeConsole, agent: AgentProcess, root: Path, mounts: Any, files: Any, message: str
) -> None:
    wanted = tuple(mount(root, path, **more) for path, more in mounts)
    configs = tuple(FileMount(path=path, value="x") for path in files)
    console.want(mounted("true", *wanted, files=configs, phase="prepare"))
    assert console.wait_gone("a1").exit == Exit(kind="not_prepared", message=message.format(root=root))


@pytest.mark.processes
def test_a_directory_swapped_for_a_link_after_the_agent_looked_is_noticed(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As another worker that may write to the drive would do it, between the look and the mount."""
    (tmp_path / "state").mkdir()
    settings = config(root, state=tmp_path / "state")
    places = Places(tmp_path / "state/events", tmp_path / "state/heard", "boot")
    runtime = Bubblewrap(settings, places, lambda: "127.0.0.1", lambda _port: None)
    wanted = mounted("cat /data/private", mount(root, sub_path="sets/v2"), phase="prepare")
    entry = Journal(tmp_path / "state/assignments").create(wanted)

    def look_and_swap(settings: Config, assignment: Assignment, mounted: Sequence[Path]) -> list[Drive]:
        found = drives_of(settings, assignment, mounted)
        (root / "data/sets/v2").rename(root / "data/sets/v1")
        (root / "data/sets/v2").symlink_to(tmp_path / "outside")
        return found

    monkeypatch.setattr("agent.bubblewrap.drives_of", look_and_swap)
    runtime.prepare(entry)
    eventually(lambda: entry.facts().exit, "its end")
    end = entry.facts().exit
    assert end is not None
    assert (end["kind"], end["message"]) == (
        "not_prepared",
        "The drive at /data changed its place while it was mounted. Start the run again.\n",
    )
    runtime.release(entry)
    runtime.close()


@pytest.mark.processes
@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts workers as others")
def test_another_user_sees_the_drive_with_its_own_rights(
    console: FakeConsole, root: Path, tmp_path: Path
) -> None:
    place = Path(tempfile.mkdtemp())  # below tmp_path other users may go nowhere
    place.chmod(0o755)
    shutil.copytree(root / "data", place / "data", symlinks=True)
    (place / "data" / "secret").mkdir(mode=0o700)
    agent = AgentProcess(console, tmp_path / "state").join(drive_roots=[str(place)]).start()
    try:
        drive = mount(root, source=str(place / "data"), read_only=False)
        script = "cat /data/sets/v2/train.txt; ls /data/secret 2>&1; touch /data/x 2>&1; true"
        console.want(mounted(script, drive, user="nobody", command="/bin/bash"))
        assert output(console) == (
            "a sample\n"
            "ls: cannot open directory '/data/secret': Permission denied\n"
            "touch: cannot touch '/data/x': Permission denied\n"
        )
    finally:
        agent.clean()
        shutil.rmtree(place)


@pytest.mark.parametrize(("meant", "said"), [(True, ""), (False, "changed its place")])
def test_a_mount_is_looked_for_until_the_roots_of_its_sandbox_are_swapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meant: bool, said: str
) -> None:
    made, seen = tmp_path / "made", tmp_path / "seen"
    made.mkdir()
    identity = (made if meant else tmp_path).stat()
    (tmp_path / "mounts").write_text(f"{identity.st_dev} {identity.st_ino} {seen}\n")
    monkeypatch.chdir(tmp_path)
    swap = threading.Timer(0.05, lambda: made.rename(seen))
    swap.start()
    wrong = mounts_wrong(os.getpid())
    swap.join()
    assert said in wrong
    assert bool(wrong) == bool(said)
