"""`./dev demo` in a clone of its own: it trains across two machines, and ends without a trace whenever it is told."""

import fcntl
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.local.clones import clone
from tests.local.serving import clean_env, wait_for

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def our_clone(tmp_path_factory):
    return clone(tmp_path_factory.mktemp("demo") / "a clone")


def start(our_clone, output):
    with output.open("wb") as file:
        return subprocess.Popen(
            [our_clone / "dev", "demo"], env=clean_env(), stdin=subprocess.DEVNULL, stdout=file, stderr=file
        )


def traces(our_clone):
    """Processes that came from the clone: its path stands in the environment of all, workers included."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            seen = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
        except OSError:  # not a process, ended meanwhile, or another user's
            continue
        if os.fsencode(our_clone) in seen:
            found.append((entry.name, seen[:200]))
    return found


def is_unlocked(our_clone):
    """PostgreSQL and Redis hold the lock as long as they live."""
    with (our_clone / ".astraeus" / "demo" / "lock").open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


@pytest.mark.parametrize(
    ("until", "number"),
    [
        ("PostgreSQL and Redis answer", signal.SIGINT),
        ("Running", signal.SIGKILL),
        ("running on CPUs over gloo", signal.SIGINT),
    ],
)
def test_a_signal_at_any_moment_leaves_no_process(our_clone, tmp_path, until, number):
    output = tmp_path / "output"
    process = start(our_clone, output)
    wait_for(lambda: until in output.read_text() or process.poll() is not None, seconds=240)
    assert process.poll() is None, output.read_text()
    process.send_signal(number)
    assert process.wait(timeout=60) == (-signal.SIGKILL if number == signal.SIGKILL else 128 + number)
    wait_for(lambda: not traces(our_clone) and is_unlocked(our_clone), seconds=60)


def test_it_trains_across_two_machines_and_ends_by_itself(our_clone, tmp_path):
    """After all the kills above, in the same clone."""
    output = tmp_path / "output"
    status = start(our_clone, output).wait(timeout=400)
    text = output.read_text()
    assert status == 0, text
    for expected in ("bus bandwidth", "over 2 CPU processes", "images/s", "Succeeded", "http://127.0.0.1:"):
        assert expected in text
    assert re.search(r"  demo(-\d+)? submitted: ", text), "the guide's own lines need the name ddp-resnet50"
    assert traces(our_clone) == []
    assert is_unlocked(our_clone)
