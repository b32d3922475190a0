"""Lines `astraeus-metric …` of workers' logs, kept as samples and drawn on the run's page."""

import math
import time

import pytest

from console.pages.metric_chart import run_charts
from runs import metrics
from runs.logs import logs_store
from runs.metrics import metrics_read
from runs.models import LogChunk, MetricSample
from wire.agent_messages import LogChunkHeader, LogsHeader

pytestmark = pytest.mark.django_db


def send(member, data: bytes, offset: int = 0) -> None:
    header = LogsHeader(
        chunks=(LogChunkHeader(assignment=str(member.id), offset=offset, size=len(data), at=time.time()),)
    )
    logs_store(machine_id=member.machine_id, header=header, body=memoryview(data))


def kept(member) -> list[tuple[str, int, float]]:
    return list(
        MetricSample.objects.filter(assignment=member)
        .order_by("step", "name")
        .values_list("name", "step", "value")
    )


@pytest.mark.parametrize(
    ("line", "samples"),
    [
        (b"astraeus-metric loss=6.9 step=50", [("loss", 50, 6.9)]),
        (b"astraeus-metric a=1 b.c/d=-2e-3 step=0\r", [("a", 0, 1.0), ("b.c/d", 0, -0.002)]),
        (b"astraeus-metric loss=-inf step=1", [("loss", 1, -math.inf)]),
        (b"astraeus-metric loss=6.9", []),
        (b"astraeus-metric step=5", []),
        (b"astraeus-metric loss=six step=5", []),
        (b"astraeus-metric loss=1 step=-5", []),
        (b"astraeus-metric loss=1 step=1.5", []),
        (b"astraeus-metric loss=1 step=9999999999999999999999", []),
        (b"astraeus-metric loss=1 and more step=5", []),
        (b"astraeus-metric loss=\xff\xfe step=5", []),
        (b"astraeus-metric " + b"x" * 70 + b"=1 step=5", []),
        (b" astraeus-metric loss=1 step=5", []),
        (b"astraeus-metric loss=1 step=5" + b" " * 1000, []),
    ],
)
def test_one_line(line, samples):
    assert metrics_read(b"before\n" + line + b"\nafter") == (samples, b"")


def test_a_value_that_is_no_number_is_kept():
    ((name, step, value),), rest = metrics_read(b"astraeus-metric loss=nan step=3\n")

    assert (name, step, math.isnan(value), rest) == ("loss", 3, True, b"")


def test_a_line_that_comes_in_pieces_is_one_sample(running):
    member = running.members[0]
    text = b"hello\nastraeus-metric loss=6.5 step=10\nbye\n"
    for offset in range(len(text)):
        send(member, text[offset : offset + 1], offset)

    assert kept(member) == [("loss", 10, 6.5)]


def test_what_is_sent_again_counts_once(running):
    member = running.members[0]
    send(member, b"astraeus-metric loss=6.5 step=10\n")
    send(member, b"astraeus-metric loss=6.5 step=10\nastraeus-metric loss=6 step=10\n")

    assert kept(member) == [("loss", 10, 6.5)]


def test_a_run_keeps_so_many_and_its_whole_log(running, monkeypatch):
    monkeypatch.setattr(metrics, "MOST_SAMPLES", 3)
    first, second = running.members
    send(first, b"".join(b"astraeus-metric loss=1 step=%d\n" % step for step in range(5)))
    send(second, b"astraeus-metric loss=1 step=9\n")

    assert [step for _, step, _ in kept(first)] == [0, 1, 2]
    assert kept(second) == []
    assert LogChunk.objects.filter(assignment=second).exists()


def test_all_workers_lines_are_over_one_axis(running):
    first, second = running.members
    send(first, b"astraeus-metric loss=4 step=0\nastraeus-metric loss=2 step=10\n")
    send(
        second,
        b"astraeus-metric loss=3 step=0\nastraeus-metric loss=nan step=5\nastraeus-metric loss=0 step=10\n",
    )

    (chart,) = run_charts(running.run)
    assert (chart.said, chart.workers) == (
        "loss from 0 to 4 over steps 0 to 10",
        (first.worker.name, second.worker.name),
    )
    assert [line.paths for line in chart.lines] == [
        ("80.0,12.0 632.0,94.0",),
        ("80.0,53.0 80.0,53.0", "632.0,176.0 632.0,176.0"),
    ]
    assert chart.rows == ((10, ("2", "0")), (5, ("", "nan")), (0, ("4", "3")))


def test_a_line_that_never_varies_and_one_of_the_widest_numbers_are_drawn(running):
    send(running.members[0], b"astraeus-metric a=1 b=1.7e308 step=1\nastraeus-metric a=1 b=-1.7e308 step=2\n")

    flat, wide = run_charts(running.run)
    assert flat.lines[0].paths == ("80.0,176.0 632.0,176.0",)
    assert wide.lines[0].paths == ("80.0,12.0 632.0,176.0",)
    assert (wide.low, wide.high) == ("-1.7e+308", "1.7e+308")


def test_numbers_beside_the_axis_are_short_enough_for_it(running):
    send(
        running.members[0],
        b"astraeus-metric loss=10.69847 step=1\nastraeus-metric loss=-0.0000891072 step=2\n",
    )

    (chart,) = run_charts(running.run)
    assert (chart.low, chart.high) == ("-8.911e-05", "10.7")
    assert chart.rows == ((2, ("-8.91072e-05",)), (1, ("10.6985",)))
