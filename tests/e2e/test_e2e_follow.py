"""Followers see a line within a second of its printing, and end when the worker ends."""

import subprocess
import sys
import time

import pytest

from tests.e2e.documents import small
from tests.e2e.world import SECONDS

pytestmark = pytest.mark.processes

STAMPED = "for i in 1 2 3 4 5 6 7 8; do echo $EPOCHREALTIME; sleep 0.2; done"
CURL = 'curl -sN "$API/workers/{worker}/logs?follow=true" -H "Authorization: Bearer $ASTRAEUS_TOKEN"'
ASTRA = f"{sys.executable} -m astra astraeus logs -f {{worker}}"


@pytest.mark.parametrize("command", [pytest.param(CURL, id="curl"), pytest.param(ASTRA, id="astra")])
def test_lines_are_seen_within_a_second_of_their_printing(here, command):
    name = here.submit(small("followed", f"sleep 1.5; {STAMPED}"))
    here.wait_running(name)

    with subprocess.Popen(
        ["bash", "-c", "exec " + command.format(worker=f"{name}-0")],
        env=here.environ(),
        stdout=subprocess.PIPE,
        text=True,
    ) as follower:
        assert follower.stdout is not None
        seen = [(float(line), time.time()) for line in follower.stdout]
        assert follower.wait(SECONDS) == 0

    assert len(seen) == 8
    assert max(arrived - printed for printed, arrived in seen) < 1
    assert here.wait(name, "Succeeded")["reason"] == "1 of 1 workers succeeded"


def test_a_follower_of_a_run_that_waits_sees_all_of_it(here):
    """Asked before there is a worker anywhere; ended by the end of the run."""
    document = small("followed-early", "echo one; echo two")
    document["spec"]["task_template"]["requested_resources"]["cpu_cores"] = 4000
    name = here.submit(document)

    with subprocess.Popen(
        ["bash", "-c", "exec " + CURL.format(worker=f"{name}-0")], env=here.environ(), stdout=subprocess.PIPE
    ) as follower:
        here.api.post(f"/runs/{name}/stop")
        here.wait(name, "Stopped")
        assert follower.communicate(timeout=SECONDS)[0] == b""
