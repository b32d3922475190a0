"""Lines `astraeus-metric name=value … step=n` of workers' logs, kept as samples.

Called with each piece of a log once and in order, under the assignment's lock. What is no metric, or a bad one, is
passed over: a log is stored whatever stands in it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from runs.models import Assignment, MetricRest, MetricSample

PREFIX = b"astraeus-metric "
LONGEST_LINE = 1024
"""Bytes. A longer line is none of ours."""
MOST_SAMPLES = 50_000
"""Of a run, over all its attempts: later ones are not kept."""
_PAIR = re.compile(r"([A-Za-z_][\w./-]{0,63})=(\S{1,40})", re.ASCII)
LARGEST_STEP = 10**15 - 1
_STEP = re.compile(r"[0-9]{1,15}")

Sample = tuple[str, int, float]
"""Name, step, value."""


def metrics_store(pieces: Mapping[str, bytes], assignments: Mapping[str, Assignment]) -> None:
    """`pieces`: what was added to the log of each assignment, by its id."""
    rests = {str(rest.assignment_id): rest for rest in MetricRest.objects.filter(assignment_id__in=pieces)}
    for key, data in pieces.items():
        before = bytes(rests[key].data) if key in rests else b""
        samples, rest = metrics_read(before + data)
        if rest:
            MetricRest.objects.update_or_create(assignment=assignments[key], defaults={"data": rest})
        elif before:
            rests[key].delete()
        if samples:
            _keep(assignments[key], samples)


def _keep(assignment: Assignment, samples: Iterable[Sample]) -> None:
    kept = MetricSample.objects.filter(assignment__attempt__run=assignment.attempt.run_id)
    room = MOST_SAMPLES - kept[:MOST_SAMPLES].count()
    rows = [
        MetricSample(assignment=assignment, name=name, step=step, value=value)
        for name, step, value in samples
    ]
    MetricSample.objects.bulk_create(rows[:room], ignore_conflicts=True)


def metrics_read(data: bytes) -> tuple[list[Sample], bytes]:
    """The samples of all whole lines, and what may be the beginning of a further one."""
    if PREFIX not in data and not _may_begin(data.rpartition(b"\n")[2]):
        return [], b""
    *lines, rest = data.split(b"\n")
    samples = [sample for line in lines for sample in _line(line.removesuffix(b"\r"))]
    return samples, rest if _may_begin(rest) else b""


def _may_begin(line: bytes) -> bool:
    return bool(line) and len(line) <= LONGEST_LINE and PREFIX.startswith(line[: len(PREFIX)])


def _line(line: bytes) -> Iterator[Sample]:
    """Nothing when one word of it is wrong: half a line would be a guess."""
    if not line.startswith(PREFIX) or len(line) > LONGEST_LINE:
        return
    pairs = [_PAIR.fullmatch(word) for word in line[len(PREFIX) :].decode(errors="replace").split()]
    found = {pair[1]: pair[2] for pair in pairs if pair}
    step = found.pop("step", "")
    if len(found) + 1 != len(pairs) or not _STEP.fullmatch(step):
        return
    values = {name: _number(text) for name, text in found.items()}
    if None not in values.values():
        yield from ((name, int(step), value) for name, value in values.items() if value is not None)


def _number(text: str) -> float | None:
    """As programs print them: 1e-3, nan, -inf."""
    try:
        return float(text)
    except ValueError:
        return None
