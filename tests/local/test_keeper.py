"""Nothing is left of `./dev`, whichever of its processes is killed, and signals end it in order."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.local.serving import clean_env, wait_for, wait_gone

pytestmark = pytest.mark.processes

KEEP = Path(__file__).with_name("keep.py")


@pytest.fixture
def keep(tmp_path):
    """Starts keep.py; returns its process and the pids that it reports."""
    started = []

    def start(work):
        report = tmp_path / "report"
        process = subprocess.Popen(
            [sys.executable, KEEP, work, report], env=clean_env(), stderr=subprocess.PIPE
        )
        started.append(process)
        wait_for(report.exists)
        return process, json.loads(report.read_text())

    yield start
    for process in started:
        with process:
            process.kill()


def test_the_exit_status_is_the_works_and_what_detached_is_gone(keep):
    process, pids = keep("returns")
    assert process.wait(timeout=30) == 7
    wait_gone(pids.values(), seconds=0)


def test_an_error_for_people_is_a_sentence(keep):
    process, _ = keep("complains")
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (1, b"./dev: The reason is this.\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_work_and_stands_in_the_status(keep, number):
    process, pids = keep("stays")
    process.send_signal(number)
    assert process.wait(timeout=30) == 128 + number
    wait_gone(pids.values(), seconds=0)


def test_the_second_signal_hurries_the_clean_up(keep, tmp_path):
    process, pids = keep("cleans_up")
    process.send_signal(signal.SIGINT)
    wait_for((tmp_path / "report.ending").exists)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 130
    wait_gone(pids.values(), seconds=0)


def test_when_the_worker_is_killed_the_keeper_ends_the_rest(keep):
    process, pids = keep("stays")
    os.kill(pids["worker"], signal.SIGKILL)
    assert process.wait(timeout=30) == 128 + signal.SIGKILL
    wait_gone(pids.values(), seconds=0)


def test_when_the_keeper_is_killed_the_worker_ends(keep):
    process, pids = keep("stays")
    process.kill()
    wait_gone([pids["worker"]])
    os.kill(pids["detached"], signal.SIGKILL)  # nobody is left who could know of it
