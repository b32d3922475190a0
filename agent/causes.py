"""The likely cause of a worker's failure: the line of its log's end that says most about it."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_TAIL_BYTES = 256 * 1024
_LINE_LENGTH = 300
_LONGEST_LINE = 4000
"""Longer ones are data, not messages; patterns are spared them."""


@dataclass(frozen=True)
class Cause:
    line: str = ""
    """Empty when nothing in the log looks like a cause."""
    offset: int | None = None
    """Where the line begins in the log, in bytes."""


@dataclass(frozen=True)
class _Line:
    text: str
    offset: int


# What launchers and loggers put before a line: "[rank0]: ", "[default3]:", "gpu-01: [1] ".
_PREFIX = re.compile(r"^(?:\[[\w .:/-]{1,60}\]:? ?)+")
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_TRACEBACK = "Traceback (most recent call last):"
_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?::(?: .*)?)?$")

# An exception that only tells of a failure somewhere else: another process, or a launcher's summary.
_SECONDARY = re.compile(
    r"(?:^|\.)(?:ChildFailedError|DistBackendError|SignalException|ProcessRaisedException|ProcessExitedException|"
    r"CalledProcessError|SystemExit|KeyboardInterrupt|BrokenPipeError|ConnectionResetError)\b"
)

_MEMORY = (
    r"\bCUDA out of memory",
    r"\bOutOfMemoryError\b",
    r"CUDA error: out of memory",
    r"\bcudaErrorMemoryAllocation\b",
    r"\bHIP out of memory",
    r"DefaultCPUAllocator: can't allocate memory",
    r"\bMemoryError\b",
    r"\bBus error\b",
    r"oom-kill|Out of memory: Killed process",
)
_DEVICE = (
    r"CUDA error: ",
    r"\bcuda runtime error\b",
    r"device-side assert",
    r"uncorrectable ECC error",
    r"no CUDA-capable device",
    r"CUDA driver version is insufficient",
)
_NETWORK = (
    r"Watchdog caught collective operation timeout",
    r"\bNCCL WARN\b.*(?:error|fail|timed? ?out|unhandled|invalid|abort|refused|closed|No such)",
    r"\bnccl(?:UnhandledCuda|System|Internal|InvalidArgument|InvalidUsage|Remote)Error\b",
    r"\bNCCL WARN\b",
)
_RENDEZVOUS = (
    r"\bDist(?:Store|Network)Error\b",
    r"\bRendezvous(?:Connection|Timeout|Closed)Error\b",
    r"client socket has (?:failed to connect|timed out)",
    r"\b(?:EADDRINUSE|Address already in use)\b",
)
_SYSTEM = (
    r"No space left on device",
    r"\bSegmentation fault\b",
    r"error while loading shared libraries",
    r"\bcommand not found\b",
    r": (?:No such file or directory|Permission denied|cannot execute binary file)",
    r"\bcan't open file\b",
    r"Illegal instruction",
    r"\bAborted\b",
    r"\bKilled\b",
    r"Signal (?:\d+ )?\(?SIG[A-Z]+\)? .*received",
    r"exitcode\s*: -\d+",
)


def likely_cause(log: Path) -> Cause:
    """Of the log's last 256 KiB. Secrets are masked there already."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            start = max(0, size - _TAIL_BYTES)
            file.seek(start)
            data = file.read(_TAIL_BYTES)
    except OSError:
        return Cause()
    found = cause_of(list(_lines(data, start)))
    return Cause(found.text[:_LINE_LENGTH], found.offset) if found else Cause()


def _lines(data: bytes, start: int) -> Iterator[_Line]:
    """Without what is put before every line, and without the first one when its beginning is cut off."""
    offset = start
    for number, raw in enumerate(data.split(b"\n")):
        if len(raw) <= _LONGEST_LINE and not (start and number == 0):
            shown = raw.rpartition(b"\r")[2] or raw  # of a progress bar the last state
            text = _COLOURS.sub("", shown.decode(errors="replace"))
            yield _Line(_PREFIX.sub("", text.rstrip()), offset)
        offset += len(raw) + 1


def cause_of(lines: Sequence[_Line]) -> _Line | None:
    """The first kind of which there is one, from what explains most to what merely follows; its last line."""
    exceptions = list(_exceptions(lines))
    own = [line for line in exceptions if not _SECONDARY.search(line.text.partition(":")[0])]
    kinds = (
        _matching(lines, _MEMORY),
        _matching(lines, _DEVICE),
        own,
        _matching(lines, _NETWORK),
        _matching(lines, _RENDEZVOUS),
        _matching(lines, _SYSTEM),
        exceptions,
    )
    return next((_stripped(found[-1]) for found in kinds if found), None)


def _stripped(line: _Line) -> _Line:
    return _Line(" ".join(line.text.split()), line.offset)


def _matching(lines: Sequence[_Line], patterns: Sequence[str]) -> list[_Line]:
    """The lines of the first pattern that any has."""
    for pattern in patterns:
        compiled = re.compile(pattern)
        found = [line for line in lines if compiled.search(line.text)]
        if found:
            return found
    return []


def _exceptions(lines: Sequence[_Line]) -> Iterator[_Line]:
    """The line after each Python traceback: the first that isn't indented."""
    inside = False
    for line in lines:
        if line.text.strip() == _TRACEBACK:
            inside = True
        elif inside and line.text and not line.text.startswith((" ", "\t")):
            inside = False
            if _EXCEPTION.match(line.text):
                yield line
