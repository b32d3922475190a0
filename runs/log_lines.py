"""A log by the numbers of its lines: ranges and searches, of one worker or of several merged.

Pieces are merged in the order in which they arrived. A line is numbered where it ends, from 0: the numbers of what is
there never change, until the middle of a log that has passed its limit is left out.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import F, QuerySet, Sum, Window

from runs.logs import chunk_batches
from runs.models import Assignment, LogChunk, Run

MOST_LINES = 1000
"""Of one range."""
MOST_MATCHES = 1000
"""Of one part of a search."""
SEARCH_BYTES = 24 * 1024 * 1024
"""Of one part of a search: what is read in a fraction of a second."""
HEAD_BYTES = 64 * 1024
"""Of an unfinished line."""
PENDING_OF = 16
"""Of at most so many workers the lines that have not ended are told."""
_TOGETHER = 8
_SEQUENCE = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]")


@dataclass(frozen=True, slots=True)
class RawLine:
    """A line as it was written."""

    number: int
    assignment_id: Any
    data: bytes
    at: datetime | None = None
    """When the piece in which it ended was printed; None while it has not ended."""
    left_out: int = 0
    """Bytes before it that are no longer kept."""


@dataclass(frozen=True, slots=True)
class Range:
    lines: list[RawLine]
    pending: list[RawLine]
    """Lines that have not ended yet, where the range reaches the end of the log."""
    total: int
    """Lines of the log that have ended."""


@dataclass(frozen=True, slots=True)
class Found:
    numbers: list[int]
    next: int | None
    """Where the search goes on; None: all is searched."""
    total: int


@dataclass(frozen=True, slots=True)
class LinePiece:
    """Whole lines, of one chunk and what the chunks before it left unfinished."""

    assignment_id: Any
    first: int
    data: bytes
    count: int
    at: datetime
    left_out: int


def log_sources(run: Run, *, worker: str = "", attempt: int | None = None) -> list[Assignment]:
    """The assignments whose logs are read, by rank: of the attempt asked for, else of the newest.

    Where workers start on their own each has its own attempts. `run` as people see it.
    """
    assignments = Assignment.objects.filter(attempt__run__in=Run.objects.family(run.id))
    if worker:
        assignments = assignments.filter(worker__name=worker)
    elif attempt is None and not run.independent:
        attempt = run.attempt_no
    if attempt is not None:
        assignments = assignments.filter(attempt__number=attempt)
    newest = assignments.order_by("worker_id", "-attempt__number").distinct("worker_id")
    found = Assignment.objects.filter(id__in=newest.values("id")).select_related(
        "worker", "attempt", "machine"
    )
    return list(found.order_by("worker__rank"))


def lines_total(assignments: Sequence[Assignment]) -> int:
    return _chunks(assignments).aggregate(total=Sum("lines"))["total"] or 0


def lines_read(assignments: Sequence[Assignment], first: int, count: int) -> Range:
    """At most `count` lines from number `first` on; a negative `first` counts from the end."""
    total = lines_total(assignments)
    start = max(0, first + total if first < 0 else first)
    end = start + min(count, MOST_LINES)
    lines: list[RawLine] = []
    for piece in line_pieces(assignments, start, end):
        lines += _cut(piece, start, end)
    return Range(lines, _pending(assignments, total) if end >= total else [], total)


def lines_search(assignments: Sequence[Assignment], pattern: re.Pattern[bytes], first: int) -> Found:
    """Numbers of the lines from `first` on in which `pattern` is found. Reads a bounded part of the log."""
    numbers: list[int] = []
    seen = 0
    following: int | None = None
    for piece in line_pieces(assignments, first):
        if seen > SEARCH_BYTES or len(numbers) >= MOST_MATCHES:
            following = piece.first
            break
        seen += len(piece.data)
        numbers += [number for number in _matches(piece, pattern) if number >= first]
    return Found(numbers, following, lines_total(assignments))


def _chunks(assignments: Sequence[Assignment]) -> QuerySet[LogChunk]:
    return LogChunk.objects.filter(assignment__in=[each.id for each in assignments])


def line_pieces(assignments: Sequence[Assignment], first: int, end: int | None = None) -> Iterator[LinePiece]:
    """From the one that holds line `first` on, to the one that holds the line before `end`.

    Data is read a few chunks at a time.
    """
    numbered = _chunks(assignments).annotate(upto=Window(Sum("lines"), order_by=F("id").asc()))
    rows = numbered.filter(upto__gt=first).order_by("id").values_list("id", "lines", "upto")
    if end is not None:
        rows = rows.filter(upto__lt=end + F("lines"))
    heads: dict[Any, tuple[int, bytes]] = {}
    places = list(rows)
    for at in range(0, len(places), _TOGETHER):
        some = places[at : at + _TOGETHER]
        chunks = LogChunk.objects.in_bulk([place[0] for place in some])
        for chunk_id, lines, upto in some:
            if chunk_id in chunks:  # else it was left out a moment ago
                yield from _piece(chunks[chunk_id], upto - lines, heads)


def _piece(chunk: LogChunk, first: int, heads: dict[Any, tuple[int, bytes]]) -> Iterator[LinePiece]:
    """`heads`: of each assignment, the offset that comes next and the line that is unfinished there."""
    key = chunk.assignment_id
    came, head = heads[key] if key in heads else _before(key, chunk.offset)
    gap = chunk.offset - came
    data = (b"" if gap else head) + bytes(chunk.data)
    whole = data.rfind(b"\n") + 1
    heads[key] = (chunk.offset + chunk.size, data[whole:][-HEAD_BYTES:])
    if whole:
        yield LinePiece(key, first, data[:whole], chunk.lines, chunk.at, gap)


def _before(assignment_id: Any, offset: int) -> tuple[int, bytes]:
    """Where the log ends before `offset`, and the unfinished line there."""
    head = b""
    end: int | None = None
    earlier = LogChunk.objects.filter(assignment_id=assignment_id, offset__lt=offset).order_by("-offset")
    for chunk in chunk_batches(earlier, 2, "offset__lt"):
        end = chunk.offset + chunk.size if end is None else end
        if chunk.offset + chunk.size + len(head) != end:
            break
        before, newline, after = bytes(chunk.data).rpartition(b"\n")
        head = (after if newline else before + after) + head
        if newline or len(head) >= HEAD_BYTES:
            break
    return end or 0, head[-HEAD_BYTES:]


def _cut(piece: LinePiece, start: int, end: int) -> Iterator[RawLine]:
    lines = piece.data.split(b"\n")[: piece.count]
    for number, data in enumerate(lines, start=piece.first):
        if start <= number < end:
            left_out = piece.left_out if number == piece.first else 0
            yield RawLine(number, piece.assignment_id, data, piece.at, left_out)


def plain_bytes(data: bytes) -> bytes:
    """Without colours."""
    return _SEQUENCE.sub(b"", data) if b"\x1b" in data else data


def _matches(piece: LinePiece, pattern: re.Pattern[bytes]) -> Iterator[int]:
    data = plain_bytes(piece.data)
    number, position, last = piece.first, 0, -1
    for match in pattern.finditer(data):
        number += data.count(b"\n", position, match.start())
        position = match.start()
        if number != last:
            last = number
            yield number


def _pending(assignments: Sequence[Assignment], total: int) -> list[RawLine]:
    if len(assignments) > PENDING_OF:
        return []
    ends = ((each.id, _before(each.id, each.log_size)[1]) for each in assignments)
    return [RawLine(total, key, data) for key, data in ends if data]
