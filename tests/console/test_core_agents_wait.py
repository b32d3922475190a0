"""Polls that wait: what wakes them, and what does not."""

import asyncio
import time

import pytest
import redis.asyncio
from asgiref.sync import sync_to_async
from django.db import transaction
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from console.streams import agents
from console.streams.database import in_thread
from console.streams.hub import hub
from machines.channel import RIVALS
from machines.models import Machine
from machines.services import machines_revise, machines_wake, machines_wake_lagging, seen_key
from tests.support.console import Agent, in_console, subscribed, with_agent

pytestmark = pytest.mark.django_db(transaction=True)


async def settled(agent: Agent) -> None:
    """The console holds what the agent observes, and the agent has applied what it should."""
    await subscribed()
    await agent.sync(digest="d")
    await agent.sync(digest="d", observed=False)


def test_a_poll_without_news_waits_and_touches_redis_only(machine, credential, empty_redis, monkeypatch):
    async def work(agent):
        await settled(agent)
        await agent.sync(digest="d", observed=False, wait=0.1)
        monkeypatch.setattr(agents, "_store", None)  # nothing is stored from here on
        empty_redis.delete(seen_key(machine.id))
        begun = time.monotonic()
        monkeypatch.setattr(agents, "ANSWER_EARLY_SECONDS", 0)
        answer = await agent.sync(digest="d", observed=False, wait=0.5)
        return time.monotonic() - begun, answer

    waited, answer = with_agent(credential, work)
    assert 0.5 <= waited < 5
    assert (answer.revision, answer.desired) == (1, None)
    assert float(empty_redis.get(seen_key(machine.id))) == pytest.approx(time.time(), abs=5)


def test_a_poll_is_answered_at_once_when_the_desired_state_moves(machine, credential):
    async def work(agent):
        await settled(agent)
        poll = asyncio.ensure_future(agent.sync(digest="d", observed=False, wait=25))
        await asyncio.sleep(0.3)
        assert not poll.done()
        begun = time.monotonic()
        await in_thread(revise, machine.id)
        answer = await poll
        return time.monotonic() - begun, answer

    took, answer = with_agent(credential, work)
    assert answer.revision == 2
    assert answer.desired is not None
    assert took < 2


def revise(machine_id: int) -> None:
    with transaction.atomic():
        machines_revise([machine_id], placement_changed=False)


def test_an_agent_that_is_replaced_while_it_waits_gets_no_orders_and_is_found_out(machine, credential):
    async def work(client):
        first, second = Agent(client, credential, "a"), Agent(client, credential, "b")
        await settled(first)
        of_this_process = dict(agents._known)
        await second.sync(digest="d")  # to another process: this one knows of the first agent only
        agents._known.update(of_this_process)
        await in_thread(lambda: Machine.objects.update(desired_revision=2))
        return [await first.sync(digest="d", observed=False, wait=0.1) for _ in range(2)]

    waited, told = in_console(work)
    assert (waited.revision, waited.desired) == (2, None)
    assert (told.desired, told.warning) == (None, RIVALS)
    machine.refresh_from_db()
    assert machine.state == "contested"


def test_a_wake_up_that_was_lost_is_repeated_by_the_sweep(machine, credential):
    async def work(agent):
        await settled(agent)
        poll = asyncio.ensure_future(agent.sync(digest="d", observed=False, wait=25))
        await asyncio.sleep(0.2)
        await in_thread(lambda: Machine.objects.filter(id=machine.id).update(desired_revision=7))
        await asyncio.sleep(0.2)
        assert not poll.done()
        await in_thread(machines_wake_lagging)
        return (await poll).revision

    assert with_agent(credential, work) == 7


def test_a_move_between_two_polls_is_not_missed(machine, credential):
    async def work(agent):
        await settled(agent)
        await in_thread(revise, machine.id)
        return await agent.sync(digest="d", observed=False, wait=25)

    assert with_agent(credential, work).revision == 2


def test_a_reconnect_to_redis_wakes_everybody(machine, credential, empty_redis):
    async def work(agent):
        await settled(agent)
        poll = asyncio.ensure_future(agent.sync(digest="d", observed=False, wait=25))
        await asyncio.sleep(0.2)
        await in_thread(lambda: Machine.objects.filter(id=machine.id).update(desired_revision=7))
        epoch = hub._epoch
        await sync_to_async(empty_redis.client_kill_filter)(_type="pubsub")
        revision = (await poll).revision
        assert hub._epoch > epoch
        return revision

    assert with_agent(credential, work) == 7


def test_without_redis_agents_are_still_served(machine, credential, monkeypatch):
    away = redis.asyncio.Redis.from_url("redis://127.0.0.1:1/0", retry=Retry(NoBackoff(), 0))
    monkeypatch.setattr(hub, "redis", away)

    async def work(agent):
        begun = time.monotonic()
        answer = await agent.sync(digest="d")
        assert time.monotonic() - begun < 5
        return answer

    assert with_agent(credential, work).stored_digest == "d"
    assert Machine.objects.get(id=machine.id).state == "ready"


def test_a_message_for_another_machine_wakes_nobody_else(machine, credential, monkeypatch):
    monkeypatch.setattr(agents, "ANSWER_EARLY_SECONDS", 0)

    async def work(agent):
        await settled(agent)
        begun = time.monotonic()
        poll = asyncio.ensure_future(agent.sync(digest="d", observed=False, wait=0.6))
        await asyncio.sleep(0.1)
        await in_thread(machines_wake, [machine.id + 1])
        await poll
        return time.monotonic() - begun

    assert with_agent(credential, work) >= 0.6
