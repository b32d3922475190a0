"""The agents' channel: join, sync (long poll), logs. What arrives is stored by machines/ and runs/."""

import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

import pydantic
from redis.exceptions import RedisError

from common.errors import DomainError
from console.streams import http
from console.streams.database import in_thread
from console.streams.hub import hub
from machines import channel, services
from machines.models import Machine
from runs.desired import desired_load
from runs.logs import logs_store
from runs.reports import reports_apply
from tenancy.authentication import bearer_of
from wire import agent_messages as wire

log = logging.getLogger(__name__)

Handler = Callable[[http.Scope, http.Receive, http.Send], Awaitable[None]]

SYNC_BYTES = 2 * 1024 * 1024
JOIN_BYTES = 16 * 1024
LOG_BODY_BYTES = wire.LOG_REQUEST_BYTES + 256 * 1024
CREDENTIAL_SECONDS = 10
"""How long a credential is believed without asking the database: a revoked one lives so long."""
MOST_CREDENTIALS = 100_000
ANSWER_EARLY_SECONDS = 2
"""Polls end up to so much before their time, so that a thousand of them don't end together."""


@dataclass(frozen=True, slots=True)
class Known:
    """What an agent last had stored: a poll that says the same again needs no database."""

    instance: str
    digest: str
    revision: int
    generation: tuple[int, int]


_credentials: dict[str, tuple[int, float]] = {}
_known: dict[int, Known] = {}


async def app(scope: http.Scope, receive: http.Receive, send: http.Send) -> None:
    handler = HANDLERS.get(scope["path"])
    try:
        await _checked(handler, scope)(scope, receive, send)
    except http.HttpError as error:
        await http.answer_error(send, error)
    except DomainError as error:
        await http.answer_error(send, http.HttpError(error.status, error.title, error.message))
    except Machine.DoesNotExist:  # removed, and its credential still believed
        await http.answer_error(send, _not_valid())
    except pydantic.ValidationError as error:
        where = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:5])
        await http.answer_error(send, http.HttpError(400, "Not a message of this protocol", where))
    except ConnectionResetError:
        return


def _checked(handler: Handler | None, scope: http.Scope) -> Handler:
    if handler is None:
        raise http.HttpError(404, "No such address", f"Agents have no {scope['path'][:80]} here.")
    if scope["method"] != "POST":
        raise http.HttpError(405, "Wrong method", "Agents send POST requests.", allow="POST")
    return handler


def _bearer(scope: http.Scope) -> str:
    """The credential sent; empty where there is none that can be read."""
    try:
        return bearer_of(http.header(scope, b"authorization")) or ""
    except ValueError:
        return ""


async def _machine(scope: http.Scope) -> int:
    """The machine whose credential the request carries."""
    value = _bearer(scope)
    cached = _credentials.get(value)
    if cached and cached[1] > time.monotonic():
        return cached[0]
    found = await in_thread(channel.credential_machine, value) if value else None
    if found is None:
        _credentials.pop(value, None)
        raise _not_valid()
    if len(_credentials) > MOST_CREDENTIALS:
        _credentials.clear()
    _credentials[value] = (found, time.monotonic() + CREDENTIAL_SECONDS)
    return found


def _not_valid() -> http.HttpError:
    return http.HttpError(
        401, "Not a credential", "This machine credential is not valid (any more). Join the machine again."
    )


async def _join(scope: http.Scope, receive: http.Receive, send: http.Send) -> None:  # noqa: ARG001 - all handlers alike
    request = wire.JoinRequest.model_validate_json(await http.body(receive, JOIN_BYTES))
    joined = await in_thread(
        services.machine_join,
        token=request.token,
        name=request.name,
        runtime=request.runtime,
        agent_version=request.agent_version,
    )
    answer = wire.JoinAnswer(
        machine=joined.machine.name,
        cluster=joined.machine.cluster.slug,
        credential=joined.credential.value,
    )
    await http.answer(send, 201, answer.model_dump_json().encode())


async def _sync(scope: http.Scope, receive: http.Receive, send: http.Send) -> None:
    machine_id = await _machine(scope)
    payload = await http.body(receive, SYNC_BYTES)
    # PostgreSQL keeps no NUL in a text: one in a message must not stop the channel for good.
    request = wire.SyncRequest.model_validate_json(payload.replace(rb"\u0000", rb"\ufffd"))
    if request.protocol < wire.OLDEST_PROTOCOL_VERSION:
        raise http.HttpError(
            426, "Agent too old", f"Protocol {request.protocol} is no longer spoken. Update the agent."
        )
    key = f"machine:{machine_id}"
    with hub.listen(key) as event:
        await _seen(machine_id)
        answer = await _receive(machine_id, request, key)
        if answer is None:
            early = random.uniform(0, ANSWER_EARLY_SECONDS)  # noqa: S311 - no secret
            await http.wait(event, max(0.0, request.wait_seconds - early))
            await _seen(machine_id)
            answer = await in_thread(_answer, machine_id, request)
    await http.answer(send, 200, answer.model_dump_json(exclude_defaults=True).encode())


async def _seen(machine_id: int) -> None:
    try:
        await hub.redis.set(
            services.seen_key(machine_id), f"{time.time():.3f}", ex=services.SEEN_KEPT_SECONDS
        )
    except (RedisError, OSError):
        log.debug("redis is away: machine %s was heard all the same", machine_id)


async def _receive(machine_id: int, request: wire.SyncRequest, key: str) -> wire.SyncAnswer | None:
    """Stores what the request brings. None: nothing is due, the agent may wait."""
    generation = hub.generation(key)
    news = Known(request.instance, request.digest, request.applied_revision, generation)
    if _known.get(machine_id) == news and request.wait_seconds > 0:
        return None
    received = await in_thread(_store, machine_id, request)
    if received.quarantined or not received.fresh:
        warning = channel.RIVALS if received.rival else ""
        return wire.SyncAnswer(
            revision=received.revision, stored_digest=received.stored_digest, warning=warning
        )
    settled = received.revision <= request.applied_revision and received.stored_digest == request.digest
    if settled:
        _known[machine_id] = news
        if request.wait_seconds > 0:
            return None
    return await in_thread(_answer, machine_id, request)


def _store(machine_id: int, request: wire.SyncRequest) -> channel.Received:
    """Reports first, the machine with its digest last: a crash in between repeats a report, never loses one."""
    absence = channel.absence_counts(machine_id, request)
    if request.observed is not None and absence is not None:
        reports_apply(
            machine_id=machine_id,
            observed=request.observed,
            applied_revision=request.applied_revision if absence else None,
            skew=timedelta(seconds=time.time() - request.sent_at),
        )
    return channel.sync_receive(machine_id, request)


def _answer(machine_id: int, request: wire.SyncRequest) -> wire.SyncAnswer:
    fields = ("instance", "desired_revision", "observed_digest", "quarantined_at", "two_agents_at")
    machine = Machine.objects.only(*fields).get(id=machine_id)
    if machine.instance != request.instance:
        return _replaced(machine, request)
    warning = channel.RIVALS if channel.starts_withheld(machine) else ""
    revision, desired = machine.desired_revision, None
    if revision > request.applied_revision and not machine.quarantined_at:
        revision, desired = desired_load(machine_id)
    return wire.SyncAnswer(
        revision=revision, desired=desired, stored_digest=machine.observed_digest, warning=warning
    )


def _replaced(machine: Machine, request: wire.SyncRequest) -> wire.SyncAnswer:
    """To an agent that another one replaced while it waited: no orders, or both would follow them.

    What it says next is stored, and so found to be a rival's, also where the other one speaks to another process.
    """
    known = _known.get(machine.id)
    if known is not None and known.instance == request.instance:
        _known.pop(machine.id, None)
    return wire.SyncAnswer(revision=machine.desired_revision, stored_digest=machine.observed_digest)


async def _logs(scope: http.Scope, receive: http.Receive, send: http.Send) -> None:
    machine_id = await _machine(scope)
    payload = await http.body(receive, LOG_BODY_BYTES)
    line, separator, _ = payload.partition(b"\n")
    if not separator:
        raise http.HttpError(400, "Not a log request", "A header line and the chunks' bytes are expected.")
    header = wire.LogsHeader.model_validate_json(line)
    chunks = memoryview(payload)[len(line) + 1 :]
    try:
        answer = await in_thread(logs_store, machine_id=machine_id, header=header, body=chunks)
    except ValueError as error:
        raise http.HttpError(400, "Not a log request", str(error)) from error
    await http.answer(send, 200, answer.model_dump_json().encode())


HANDLERS: dict[str, Handler] = {wire.SYNC_PATH: _sync, wire.LOGS_PATH: _logs, wire.JOIN_PATH: _join}
