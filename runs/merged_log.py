"""Several workers' logs as one text: whole lines, in the order in which they arrived, each with its worker's name."""

from collections.abc import Iterable
from itertools import islice
from typing import Any

from runs.log_lines import HEAD_BYTES
from runs.logs import left_out_words
from runs.models import Assignment, LogChunk

PIECES = 8
"""Read at a time."""


class MergedLog:
    """All that had arrived when it was begun: a piece's number is given before others can see it, so of a log that
    grows the numbers that one has seen don't tell what is still missing below them.

    Read part by part: no more than a few pieces and the workers' unfinished lines are in memory.
    """

    def __init__(self, assignments: Iterable[Assignment]) -> None:
        """`assignments` with their workers loaded."""
        self._prefixes = {each.id: f"{each.worker.name} | ".encode() for each in assignments}
        pieces = LogChunk.objects.filter(assignment__in=list(self._prefixes)).order_by("id")
        self._pieces = iter(list(pieces.values_list("id", flat=True)))
        self._ends: dict[Any, int] = {}
        self._rests: dict[Any, bytes] = {}

    def read(self) -> bytes | None:
        """The next part, which may be empty; None at the end."""
        numbers = list(islice(self._pieces, PIECES))
        if not numbers:
            return self._last()
        chunks = LogChunk.objects.filter(id__in=numbers).order_by("id")
        return b"".join(self._whole_lines(chunk) for chunk in chunks)

    def _whole_lines(self, chunk: LogChunk) -> bytes:
        key = chunk.assignment_id
        gap = chunk.offset - self._ends.get(key, 0)
        before = self._rests.pop(key, b"")
        if gap > 0:
            note = f"[{left_out_words(gap)}]".encode()
            before = b"\n".join([before, note, b""] if before else [note, b""])
        *lines, rest = (before + bytes(chunk.data)).split(b"\n")
        if len(rest) > HEAD_BYTES:  # a worker that never ends a line fills no memory
            lines.append(rest)
            rest = b""
        self._ends[key] = chunk.offset + chunk.size
        if rest:
            self._rests[key] = rest
        return self._prefixed(key, lines)

    def _last(self) -> bytes | None:
        """What ended without a line's end."""
        rests, self._rests = self._rests, {}
        return b"".join(self._prefixed(key, [rest]) for key, rest in rests.items()) or None

    def _prefixed(self, key: Any, lines: Iterable[bytes]) -> bytes:
        return b"".join(self._prefixes[key] + line + b"\n" for line in lines)
