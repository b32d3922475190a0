"""Lines of logs by their numbers, and searches over all of a log."""

import re

import pytest
from django.utils import timezone

from runs.log_lines import lines_read, lines_search, lines_total
from runs.models import Assignment, LogChunk
from tests import factories as make


@pytest.fixture
def pair(house):
    """The assignments of a run of two workers."""
    machines = [make.machine_make(house, name) for name in ("gpu-01", "gpu-02")]
    attempt = make.run_place(house, make.run_pending(house), machines)
    make.run_start(attempt)
    return list(attempt.assignments.order_by("worker__rank"))


def told(lines):
    return [(line.number, line.data.decode()) for line in lines]


def test_lines_are_found_by_number_wherever_a_piece_was_cut(pair):
    for piece in (b"zero\none\ntw", b"o\n", b"thr", b"ee\nfour\nha"):
        make.log_write(pair[0], piece)
    whole = lines_read(pair[:1], 0, 100)
    assert told(whole.lines) == [(0, "zero"), (1, "one"), (2, "two"), (3, "three"), (4, "four")]
    assert (told(whole.pending), whole.total) == ([(5, "ha")], 5)
    for first in range(6):
        assert told(lines_read(pair[:1], first, 2).lines) == told(whole.lines)[first : first + 2]
    assert told(lines_read(pair[:1], -2, 100).lines) == [(3, "three"), (4, "four")]
    assert lines_read(pair[:1], 0, 2).pending == []


def test_several_logs_are_merged_as_they_arrived(pair):
    make.log_write(pair[0], b"a0\na1 be")
    make.log_write(pair[1], b"b0\n")
    make.log_write(pair[0], b"gun\n")
    make.log_write(pair[1], b"b1 not ended")
    got = lines_read(pair, 0, 100)
    ranks = {pair[0].id: 0, pair[1].id: 1}
    assert [(line.number, ranks[line.assignment_id], line.data) for line in got.lines] == [
        (0, 0, b"a0"),
        (1, 1, b"b0"),
        (2, 0, b"a1 begun"),
    ]
    assert told(got.pending) == [(3, "b1 not ended")]
    assert lines_total(pair) == 3


def test_what_is_no_longer_kept_is_told_before_the_line_that_follows(pair):
    make.log_write(pair[0], b"begin\ncut o")
    make.log_write(pair[0], b"ff\n" * 10)
    make.log_write(pair[0], b"tail\n")
    LogChunk.objects.order_by("id")[1].delete()
    got = lines_read(pair[:1], 0, 100)
    assert [(line.number, line.data, line.left_out) for line in got.lines] == [
        (0, b"begin", 0),
        (1, b"tail", 30),
    ]


def test_a_search_reads_all_of_it_part_by_part(pair, monkeypatch):
    for number in range(40):
        make.log_write(pair[0], b"step %d\n\x1b[31mNET\x1b[0m/IB %d\nend" % (number, number))
    pattern = re.compile(b"net/ib", re.IGNORECASE)
    assert lines_search(pair[:1], pattern, 0).numbers == list(range(1, 80, 2))
    monkeypatch.setattr("runs.log_lines.SEARCH_BYTES", 200)
    parts = [lines_search(pair[:1], pattern, 0)]
    while parts[-1].next is not None:
        parts.append(lines_search(pair[:1], pattern, parts[-1].next))
    assert [number for part in parts for number in part.numbers] == list(range(1, 80, 2))
    assert len(parts) > 3


@pytest.mark.parametrize("lines", [200_000])
def test_a_line_in_a_long_log_is_read_in_a_few_queries(pair, lines, django_assert_max_num_queries):
    text = b"".join(b"step %07d loss 6.912 lr 0.0003 tokens/s 81234\n" % number for number in range(lines))
    size = 256 * 1024
    LogChunk.objects.bulk_create(
        LogChunk(
            assignment=pair[0],
            offset=at,
            size=len(data),
            at=timezone.now(),
            lines=data.count(b"\n"),
            data=data,
        )
        for at in range(0, len(text), size)
        if (data := text[at : at + size])
    )
    Assignment.objects.filter(id=pair[0].id).update(log_size=len(text))
    pair[0].refresh_from_db()
    with django_assert_max_num_queries(4):
        got = lines_read(pair[:1], lines // 2, 3)
    assert got.lines[0].data.startswith(b"step %07d " % (lines // 2))
    assert got.total == lines
