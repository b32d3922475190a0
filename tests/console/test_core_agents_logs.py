"""Logs as agents send them."""

import asyncio
import json
import time
from datetime import timedelta

import pytest
from django.utils import timezone

from runs.models import Assignment
from tests import factories
from tests.support.console import credential_of, with_agent
from tests.support.gangs import placed_on

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def worker(house, machine) -> Assignment:
    return placed_on(house, machine).members[0]


def stored(worker: Assignment) -> bytes:
    return b"".join(bytes(chunk.data) for chunk in worker.log_chunks.order_by("offset"))


def test_chunks_are_stored_once_whatever_is_sent_twice(worker, credential):
    key = str(worker.id)

    async def work(agent):
        answers = [
            await agent.logs((key, 0, b"hello "), (key, 6, b"world\n")),
            await agent.logs((key, 0, b"hello ")),  # again
            await agent.logs((key, 8, b"rld\nmore\n")),  # overlaps
            await agent.logs((key, 100, b"gap")),  # leaves a gap: not taken
            await agent.logs(),
        ]
        return [(answer.status_code, answer.json()["next"].get(key)) for answer in answers]

    assert with_agent(credential, work) == [(200, 12), (200, 12), (200, 17), (200, 17), (200, None)]
    assert stored(worker) == b"hello world\nmore\n"
    worker.refresh_from_db()
    assert worker.log_size == 17


def test_two_at_once_store_every_byte_once(worker, credential):
    key = str(worker.id)

    async def work(agent):
        parts = [(key, 10 * number, b"%09d\n" % number) for number in range(20)]
        await asyncio.gather(*(agent.logs(*parts) for _ in range(4)))

    with_agent(credential, work)
    assert stored(worker) == b"".join(b"%09d\n" % number for number in range(20))


def test_another_machine_s_worker_is_unknown(house, worker, credential):
    other = factories.machine_make(house, "gpu-02", gpus=2)
    foreign = credential_of(other)
    key = str(worker.id)
    response = with_agent(foreign, lambda agent: agent.logs((key, 0, b"forged\n"), ("no id", 0, b"x")))

    assert response.json() == {"next": {}, "unknown": sorted([key, "no id"])}
    assert stored(worker) == b""


def test_sizes_that_don_t_add_up_are_refused(worker, credential):
    header = {"chunks": [{"assignment": str(worker.id), "offset": 0, "size": 3, "at": 1.0}]}

    async def work(agent):
        for data in (b"x", b"xxxx"):
            body = json.dumps(header).encode() + b"\n" + data
            response = await agent.client.post("/agent/v1/logs", headers=agent.headers, content=body)
            assert response.status_code == 400
            assert response.json()["detail"] == "The chunks' sizes don't add up to the body's length."

    with_agent(credential, work)
    assert stored(worker) == b""


def test_what_is_no_log_request_is_refused(worker, credential):
    async def work(agent):
        for body in (b"", b"no header", b"{}\n", b'{"chunks": [{"assignment": 1}]}\n'):
            response = await agent.client.post("/agent/v1/logs", headers=agent.headers, content=body)
            assert response.status_code == 400, body

    with_agent(credential, work)


def test_a_log_request_that_is_too_large_is_refused(worker, credential):
    body = b"x" * (4 * 1024 * 1024 + 256 * 1024 + 1)
    response = with_agent(
        credential, lambda agent: agent.client.post("/agent/v1/logs", headers=agent.headers, content=body)
    )

    assert response.status_code == 413


def test_a_chunk_is_as_old_as_the_agent_s_own_clock_says(worker, credential):
    """Its clock is a day behind: what counts is how long before the request the chunk was read."""
    behind = time.time() - 86_400
    body = {
        "sent_at": behind,
        "chunks": [{"assignment": str(worker.id), "offset": 0, "size": 2, "at": behind - 60}],
    }

    async def work(agent):
        content = json.dumps(body).encode() + b"\nhi"
        return await agent.client.post("/agent/v1/logs", headers=agent.headers, content=content)

    assert with_agent(credential, work).status_code == 200
    age = timezone.now() - worker.log_chunks.get().at
    assert timedelta(seconds=59) < age < timedelta(seconds=90)


@pytest.mark.parametrize("at", ["1e300", "-1", "NaN"])
def test_impossible_times_are_refused_and_not_a_crash(worker, credential, at):
    header = f'{{"chunks": [{{"assignment": "{worker.id}", "offset": 0, "size": 1, "at": {at}}}]}}'

    async def work(agent):
        content = header.encode() + b"\nx"
        return await agent.client.post("/agent/v1/logs", headers=agent.headers, content=content)

    assert with_agent(credential, work).status_code == 400


def test_a_credential_counts_as_a_bearer_s_only_also_when_it_was_just_believed(worker, credential):
    async def work(agent):
        believed = await agent.logs()
        basic = {name: value.replace("Bearer", "Basic") for name, value in agent.headers.items()}
        refused = await agent.client.post("/agent/v1/logs", headers=basic, content=b'{"chunks": []}\n')
        return believed.status_code, refused.status_code

    assert with_agent(credential, work) == (200, 401)
