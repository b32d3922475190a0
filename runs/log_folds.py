"""Neighbouring lines of one worker that differ only in their numbers, which a reader may want as one line."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from runs.log_lines import LinePiece, RawLine, line_pieces, plain_bytes
from runs.models import Assignment

FEWEST = 3
"""Lines of a fold: two take hardly more room than one."""
MOST = 10_000
"""Lines of a fold, about: where a log grows, its last fold is read again."""
MOST_FOLDS = 1000
"""Of one part of the log."""
PART_BYTES = 8 * 1024 * 1024
"""Of one part: what is read in a fraction of a second."""
_NUMBER = re.compile(rb"[-+]?\d[\d.,:]*(?:e[-+]?\d+)?", re.IGNORECASE)
_OVERWRITTEN = re.compile(rb"^[^\n]*\r(?=[^\n\r])", re.MULTILINE)
"""Looked for from the begin of a line alone: else a long line without it is read again from each of its bytes."""


@dataclass(frozen=True, slots=True)
class Fold:
    first: int
    count: int
    last: RawLine
    """The one that stands for all."""


@dataclass(frozen=True, slots=True)
class Folds:
    folds: list[Fold]
    read: int
    """Lines up to this number are judged."""
    more: bool
    """Whether the log goes on there."""


@dataclass(slots=True)
class _Alike:
    shape: bytes
    first: int
    count: int
    last: RawLine


def lines_fold(assignments: Sequence[Assignment], first: int, keep: re.Pattern[bytes]) -> Folds:
    """The folds from line `first` on, in a bounded part of the log. A line in which `keep` is found is never folded."""
    folds: list[Fold] = []
    alike: _Alike | None = None
    seen, read, more = 0, first, False
    for piece in line_pieces(assignments, first):
        if seen > PART_BYTES or len(folds) >= MOST_FOLDS:
            more = True
            break
        seen += len(piece.data)
        read = piece.first + piece.count
        start = first
        if piece.left_out:  # what is told there is not hidden in a fold
            folds, alike, start = [*folds, *_fold(alike, keep)], None, max(first, piece.first + 1)
        for following in _alike(piece, start):
            if alike and _continues(alike, following):
                following.first, following.count = alike.first, alike.count + following.count
            else:
                folds += _fold(alike, keep)
            alike = following
    return Folds([*folds, *_fold(alike, keep)], read, more)


def _alike(piece: LinePiece, start: int) -> Iterator[_Alike]:
    """The piece's lines from number `start` on, those that differ only in numbers together."""
    skip = max(0, start - piece.first)
    lines = piece.data.split(b"\n")[skip : piece.count]
    number = piece.first + skip
    position = 0
    for shape, group in groupby(_shapes(piece.data).split(b"\n")[skip : piece.count]):
        count = sum(1 for _ in group)
        position += count
        last = number + position - 1
        raw = RawLine(last, piece.assignment_id, lines[position - 1], piece.at)
        yield _Alike(shape, last - count + 1, count, raw)


def _shapes(data: bytes) -> bytes:
    """Lines without what tells them apart: colours, overwritten text, the digits of numbers."""
    plain = plain_bytes(data)
    if b"\r" in plain:
        plain = _OVERWRITTEN.sub(b"", plain)
    return _NUMBER.sub(b"0", plain)


def _continues(alike: _Alike, following: _Alike) -> bool:
    of_one = alike.last.assignment_id == following.last.assignment_id
    return of_one and alike.shape == following.shape and alike.count < MOST


def _fold(alike: _Alike | None, keep: re.Pattern[bytes]) -> list[Fold]:
    if alike is None or alike.count < FEWEST or keep.search(alike.shape):
        return []
    return [Fold(alike.first, alike.count, alike.last)]
