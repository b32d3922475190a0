"""Lines that differ only in numbers, told as folds: of one worker, never over an error or a gap, in bounded parts."""

import re

import pytest

from runs import log_folds
from runs.log_folds import lines_fold
from runs.models import LogChunk
from tests import factories as make

NEVER = re.compile(rb"error", re.IGNORECASE)


@pytest.fixture
def pair(running):
    return running.members


def told(got):
    return [(fold.first, fold.count, fold.last.number, fold.last.data.decode()) for fold in got.folds]


def test_neighbours_that_differ_only_in_numbers(pair):
    make.log_write(
        pair[0],
        b"begin\nstep 1 loss 6.9\nstep 2 loss 1e-05\n\x1b[32mstep 30\x1b[0m loss -2.5\nstep 4 loss\n"
        b"a 1\na 2\nb 1\n10%\r20% x 1\n30% x 2\n1%\r2%\r3% x 3\nend",
    )
    got = lines_fold(pair[:1], 0, NEVER)
    assert told(got) == [
        (1, 3, 3, "\x1b[32mstep 30\x1b[0m loss -2.5"),
        (8, 3, 10, "1%\r2%\r3% x 3"),
    ]
    assert (got.read, got.more) == (11, False)
    assert told(lines_fold(pair[:1], 2, NEVER)) == told(got)[1:]
    assert told(lines_fold(pair[:1], 99, NEVER)) == []


def test_a_long_line_beside_overwritten_text_is_read_once(pair):
    make.log_write(pair[0], b"1%\r2%\r3% x 1\n" + b"z" * 2_000_000 + b"\n9% x 2\n10% x 3\n11% x 4\n")
    assert told(lines_fold(pair[:1], 0, NEVER)) == [(2, 3, 4, "11% x 4")]


def test_a_fold_goes_over_pieces_but_not_over_workers_or_gaps(pair):
    for rank, data in ((0, b"n 1\nn 2\nn"), (0, b" 3\nn 4\n"), (1, b"n 5\nn 6\nn 7\n"), (0, b"n 8\n")):
        make.log_write(pair[rank], data)
    assert [fold[:3] for fold in told(lines_fold(pair, 0, NEVER))] == [(0, 4, 3), (4, 3, 6)]
    LogChunk.objects.filter(data=b" 3\nn 4\n").delete()
    make.log_write(pair[0], b"n 9\nn 10\nn 11\n")
    assert [fold[:3] for fold in told(lines_fold(pair[:1], 0, NEVER))] == [(3, 3, 5)]


def test_lines_with_errors_stand_for_themselves(pair):
    make.log_write(pair[0], b"Error 1\nError 2\nError 3\nError 4\n")
    assert told(lines_fold(pair[:1], 0, NEVER)) == []


def test_a_long_log_is_judged_part_by_part(pair, monkeypatch):
    monkeypatch.setattr(log_folds, "PART_BYTES", 20)
    monkeypatch.setattr(log_folds, "MOST", 8)
    for number in range(10):
        make.log_write(pair[0], b"step %d\n" % number * 2)
    parts = [lines_fold(pair[:1], 0, NEVER)]
    while parts[-1].more:
        parts.append(lines_fold(pair[:1], parts[-1].read, NEVER))
    found = [fold for part in parts for fold in told(part)]
    assert parts[-1].read == 20
    assert len(parts) > 3
    assert [fold[:2] for fold in found] == [(0, 4), (4, 4), (8, 4), (12, 4), (16, 4)]
