"""Logs: stored as the agents send them, by absolute offset, once.

Of each worker the first 64 and the last 192 MiB are kept; the gap in between is told when it is read.
"""

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F, QuerySet
from django.utils import timezone

from common.nudge import publish_on_commit
from runs.events import LIVE_CHANNEL
from runs.metrics import metrics_store
from runs.models import Assignment, LogChunk
from wire.agent_messages import LOG_CHUNK_BYTES, LogChunkHeader, LogsAnswer, LogsHeader
from wire.quantities import format_size

MIB = 1024 * 1024
HEAD_BYTES = 64 * MIB
TAIL_BYTES = 192 * MIB
OLDEST_SECONDS = 30 * 86_400
"""A chunk waits on its machine while the console is away, but not for longer than this."""


@transaction.atomic
def logs_store(*, machine_id: int, header: LogsHeader, body: memoryview) -> LogsAnswer:
    """Stores the chunks that continue what is there and answers the next offsets expected.

    A chunk that overlaps is cut, one that leaves a gap is not taken: the agent goes on from the answer.
    Raises ValueError when the header's sizes don't add up to the body.
    """
    if sum(chunk.size for chunk in header.chunks) != len(body):
        raise ValueError("The chunks' sizes don't add up to the body's length.")
    ids = {chunk.assignment for chunk in header.chunks}
    known = _locked(machine_id, ids)
    position, rows = 0, []
    now = timezone.now()
    for chunk in header.chunks:
        data = body[position : position + chunk.size]
        position += chunk.size
        if chunk.assignment in known and (
            row := _row(known[chunk.assignment], chunk, data, now - _age(header, chunk))
        ):
            rows.append(row)
    LogChunk.objects.bulk_create(rows)
    for assignment_id in {str(row.assignment_id) for row in rows}:
        known[assignment_id].save(update_fields=["log_size"])
        _trim(known[assignment_id])
        publish_on_commit(LIVE_CHANNEL, f"log:{assignment_id}")
    metrics_store(_joined(rows), known)
    return LogsAnswer(
        next={key: each.log_size for key, each in known.items()}, unknown=tuple(sorted(ids - set(known)))
    )


def _joined(rows: Iterable[LogChunk]) -> dict[str, bytes]:
    """What was added to each assignment's log."""
    added: dict[str, bytes] = {}
    for row in rows:
        added[str(row.assignment_id)] = added.get(str(row.assignment_id), b"") + bytes(row.data)
    return added


def _locked(machine_id: int, ids: set[str]) -> dict[str, Assignment]:
    """The machine's assignments among `ids`, locked in the order in which reports lock them."""
    mine = Assignment.objects.filter(machine_id=machine_id, id__in=_uuids(ids)).order_by("id")
    return {str(each.id): each for each in mine.select_for_update()}


def _uuids(values: set[str]) -> list[str]:
    found = []
    for value in values:
        try:
            found.append(str(uuid.UUID(value)))
        except ValueError:
            continue
    return found


def _age(header: LogsHeader, chunk: LogChunkHeader) -> timedelta:
    """How long before the request the chunk was read, by the agent's own clock: whether it is right or not."""
    sent_at = chunk.at if header.sent_at is None else header.sent_at
    return timedelta(seconds=min(max(sent_at - chunk.at, 0), OLDEST_SECONDS))


def _row(assignment: Assignment, chunk: LogChunkHeader, data: memoryview, at: datetime) -> LogChunk | None:
    skip = assignment.log_size - chunk.offset
    if not 0 <= skip < chunk.size:
        return None
    size = chunk.size - skip
    offset = assignment.log_size
    assignment.log_size += size
    kept = bytes(data[skip:])
    return LogChunk(
        assignment=assignment, offset=offset, size=size, at=at, lines=kept.count(b"\n"), data=kept
    )


def _trim(assignment: Assignment) -> None:
    end = assignment.log_size - TAIL_BYTES
    if end > HEAD_BYTES:
        LogChunk.objects.filter(assignment=assignment, offset__gte=HEAD_BYTES, offset__lt=end).filter(
            offset__lte=end - F("size")
        ).delete()


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of bytes of a log, and the offset that follows it."""

    data: bytes
    next_offset: int


def log_first_offset(assignment_id: uuid.UUID | str, start: int) -> int:
    """`start`, or where the log goes on when what stood there is no longer kept."""
    first = _from(assignment_id, start).values_list("offset", flat=True).first()
    return start if first is None else max(start, first)


def _from(assignment_id: uuid.UUID | str, start: int) -> QuerySet[LogChunk]:
    """The chunks that hold the byte at `start` and what follows it. The first bound lets the index find them."""
    chunks = LogChunk.objects.filter(assignment_id=assignment_id, offset__gt=start - LOG_CHUNK_BYTES)
    return chunks.filter(offset__gt=start - F("size")).order_by("offset")


def chunk_batches(chunks: QuerySet[LogChunk], size: int, beyond: str) -> Iterator[LogChunk]:
    """The chunks, a few at a time: a cursor outside of a transaction would first copy them all."""
    batch = list(chunks[:size])
    while batch:
        yield from batch
        batch = list(chunks.filter(**{beyond: batch[-1].offset})[:size])


def left_out_words(size: int) -> str:
    """What stands where `size` bytes are no longer kept."""
    return f"{format_size(size)} left out here: the log passed its limit. Its beginning and end are kept."


def log_pieces(
    assignment_id: uuid.UUID | str, start: int, *, limit: int = 4 * MIB, tell_gap: bool = True
) -> Iterator[Piece]:
    """The log from `start` on, at most about `limit` bytes.

    A gap is told in a line of its own; without `tell_gap` the log ends there, so that every byte keeps its offset.
    """
    position, sent = start, 0
    for chunk in chunk_batches(_from(assignment_id, start), 16, "offset__gt"):
        if chunk.offset > position and not tell_gap:
            return
        if chunk.offset > position:
            note = f"\n[{left_out_words(chunk.offset - position)}]\n"
            yield Piece(note.encode(), chunk.offset)
        data = bytes(chunk.data)[max(0, position - chunk.offset) :]
        position = chunk.offset + chunk.size
        sent += len(data)
        yield Piece(data, position)
        if sent >= limit:
            return


def log_tail_offset(assignment: Assignment, lines: int) -> int:
    """Where the last `lines` lines begin."""
    if lines <= 0:
        return assignment.log_size
    found = 0
    chunks = LogChunk.objects.filter(assignment=assignment).order_by("-offset")
    first, following = 0, assignment.log_size
    for chunk in chunk_batches(chunks, 4, "offset__lt"):
        data = bytes(chunk.data)
        first = chunk.offset
        position = len(data)
        if chunk.offset + chunk.size == assignment.log_size and data.endswith(b"\n"):
            position -= 1
        while (position := data.rfind(b"\n", 0, position)) >= 0:
            found += 1
            if found == lines:  # a line that begins behind the chunk may begin behind a gap
                return chunk.offset + position + 1 if position + 1 < len(data) else following
        following = first
    return first


def log_since_offset(assignment: Assignment, since: datetime) -> int:
    """Where what was written at `since` or later begins, to the precision of a chunk."""
    first = LogChunk.objects.filter(assignment=assignment, at__gte=since).order_by("offset").first()
    return first.offset if first else assignment.log_size


def log_complete(assignment: Assignment) -> bool:
    """Whether everything that the worker wrote is stored."""
    return assignment.log_final is not None and assignment.log_size >= assignment.log_final
