"""`python -m agent.discovery.helper`: asks NVML again and again and prints each answer as a line of JSON.

A process of its own, because a call into a broken driver may never return, and may not even be killed. It keeps the
library open: without anybody who does, the driver unloads a GPU's state, and with it the error counters. So the agent
has to be stopped for what wants no clients at all, such as resetting a GPU; workers go on meanwhile.
"""

import argparse
import ctypes
import os
import signal
import sys
import time
from pathlib import Path

from agent.discovery.answers import Failure, NvmlAnswer, Xid
from agent.discovery.gpus import GpuReader
from agent.discovery.nvml import Library, Nvml, NvmlError
from agent.discovery.nvml_recorded import Recorder

PERIOD_SECONDS = 10.0
_LOOK_SECONDS = 1.0
_MOST_XIDS = 1000
_PR_SET_PDEATHSIG = 1


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--once", action="store_true")
    parser.add_argument("--record", type=Path)
    arguments = parser.parse_args()
    _end_with_parent()
    library = Library()
    try:
        library.open()
        nvml: Nvml = Recorder(library) if arguments.record else library
        reader = GpuReader(nvml)
        answer = reader.read()
    except NvmlError as error:
        _say(NvmlAnswer(failure=Failure(code=error.code, message=str(error))))
        return 0
    _say(answer)
    if isinstance(nvml, Recorder):
        arguments.record.write_text(nvml.text())
    if not arguments.once:
        _go_on(library, reader, answer)
    return 0


def _end_with_parent() -> None:
    """Also when the agent is killed: a helper that hangs would not notice that nobody reads."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


def _go_on(library: Library, reader: GpuReader, answer: NvmlAnswer) -> None:
    watched = _watch(library, len(answer.gpus))
    while True:
        busy, xids = _listen(library if watched else None, reader, len(answer.gpus))
        try:
            answer = reader.read()
        except NvmlError as error:
            _say(NvmlAnswer(failure=Failure(code=error.code, message=str(error)), xids=tuple(xids)))
            return
        gpus = tuple(
            gpu.model_copy(update={"busy": True}) if gpu.index in busy and not gpu.error else gpu
            for gpu in answer.gpus
        )
        _say(answer.model_copy(update={"gpus": gpus, "xids": tuple(xids)}))


def _watch(library: Library, gpus: int) -> bool:
    """Whether errors can be listened for."""
    try:
        library.watch(gpus)
    except NvmlError as error:
        print(f"GPU errors can't be listened for: {error}", file=sys.stderr)  # noqa: T201 - the agent's log
        return False
    return True


def _listen(library: Library | None, reader: GpuReader, gpus: int) -> tuple[set[int], list[Xid]]:
    """Which GPUs have worked until the next answer is due, and what errors came; an error is told at once."""
    busy: set[int] = set()
    xids: list[Xid] = []
    until = time.monotonic() + PERIOD_SECONDS
    while (left := until - time.monotonic()) > 0 and not xids:
        xids += _errors(library, min(left, _LOOK_SECONDS))
        busy |= {index for index in range(gpus) if _busy(reader, index)}
    if xids:  # a second for the rest of the burst; and no GPU's trouble makes this a busy loop
        time.sleep(_LOOK_SECONDS)
        xids += _errors(library, 0)
    return busy, xids


def _errors(library: Library | None, seconds: float) -> list[Xid]:
    """One GPU's trouble comes as a burst: all that is there already, after the first that came within `seconds`."""
    found: list[Xid] = []
    try:
        wait = round(seconds * 1000)
        while library is not None and len(found) < _MOST_XIDS and (xid := library.wait(wait)) is not None:
            found.append(xid)
            wait = 0
    except NvmlError:  # of a GPU that is lost, say: the next answer tells
        library = None
    if library is None:
        time.sleep(seconds)
    return found


def _busy(reader: GpuReader, index: int) -> bool:
    try:
        return bool(reader.busy(index))
    except NvmlError:
        return False


def _say(answer: NvmlAnswer) -> None:
    print(answer.model_dump_json(exclude_defaults=True), flush=True)  # noqa: T201 - to the agent


if __name__ == "__main__":
    sys.exit(main())
