"""Runs the step that the job names."""

from __future__ import annotations

import json
import os
import sys
import threading

from agent.preflight.within.answers import JOB, MARK, failed, said
from agent.preflight.within.look import look
from agent.preflight.within.measure import rank_measure
from agent.preflight.within.meet import meet

_TIMED_OUT = 124


def main() -> None:
    job = json.loads(os.environ[JOB])
    # Whatever hangs, and whoever was to end it: no process of this outlives its time.
    watchdog = threading.Timer(job["seconds"], os._exit, [_TIMED_OUT])
    watchdog.daemon = True
    watchdog.start()
    steps = {"look": look, "meet": meet, "rank": rank_measure}
    try:
        answer = steps[job["step"]](job)
    except Exception as error:  # noqa: BLE001 - whatever it is, this is the way to tell it
        answer = failed(said(error), [job["machines"][job["rank"]]])
    sys.stdout.write(f"{MARK}{json.dumps(answer)}\n")
    sys.stdout.flush()
