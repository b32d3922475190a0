"""Probes, the warning before the time limit and the likely cause, from the run's document to what people read."""

from typing import Any

import pytest

from tests.e2e.documents import NUMBERED, gang, small
from tests.e2e.world import eventually

pytestmark = pytest.mark.processes


def bash(script: str, **more: int) -> dict[str, object]:
    return {"exec": {"command": "bash", "args": ["-c", script]}, "period_seconds": 1, **more}


def test_a_failed_liveness_probe_restarts_the_run_as_its_document_says(here):
    sick = 'echo "attempt $ASTRAEUS_ATTEMPT of $ASTRAEUS_TASK_NAME is sick"; [ $ASTRAEUS_ATTEMPT != 1 ]'
    probes = {"readiness": bash("true"), "liveness": bash(sick, failure_threshold=2)}
    name = here.submit(gang("probes", NUMBERED, probes=probes, on_failure="RestartJob"))

    failed = "liveness probe failed 2 times: exit 1: attempt 1 of probes-"
    eventually(lambda: failed in here.status(name)["reason"], lambda: here.status(name))
    assert here.wait(name, "Pending")["reason"].startswith("Attempt 1 failed (probes-")
    here.skip_backoff(name)

    here.wait(name, "Running", attempt=2)
    ready = ["Running on gpu-01. Ready", "Running on gpu-02. Ready"]
    eventually(
        lambda: [worker["reason"] for worker in here.status(name)["workers"]] == ready,
        lambda: here.status(name),
    )


def test_the_warning_leaves_time_for_a_last_checkpoint(here):
    script = "trap 'echo checkpoint; exit 0' USR1; echo start; while :; do sleep 0.05; done"
    limits: dict[str, Any] = {"time_limit_seconds": 600, "warn_signal_seconds": 599, "stop_signal": "SIGUSR1"}
    name = here.submit(small("warned", script, **limits))

    here.wait(name, "Succeeded")

    assert here.whole_log(f"{name}-0") == "start\ncheckpoint\n"


def test_the_likely_cause_stands_in_the_reason(here):
    name = here.submit(small("cause", "python -c 'raise ValueError(\"batch size must be positive\")'"))

    status = here.wait(name, "Failed")

    why = "code 1; likely cause: “ValueError: batch size must be positive”"
    machine = status["workers"][0]["machine"]
    assert status["reason"] == f"cause-0 on {machine}: {why}"
