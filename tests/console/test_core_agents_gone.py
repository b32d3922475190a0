"""An agent whose machine was removed, or whose credential was revoked, under it."""

import pytest

from console.streams.database import in_thread
from machines.operations import machine_remove, machine_sign_out
from tests import factories
from tests.support.console import with_agent
from wire import agent_messages as wire

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("act", [machine_remove, machine_sign_out])
def test_it_is_refused_as_soon_as_its_credential_is_no_longer_believed(
    house, machine, credential, act, monkeypatch
):
    monkeypatch.setattr("console.streams.agents.CREDENTIAL_SECONDS", 0)
    actor = factories.actor_of(house.ana)

    async def work(agent):
        await agent.sync()
        await in_thread(act, machine=machine, actor=actor)
        return await agent.client.post(wire.SYNC_PATH, headers=agent.headers, content=agent.message())

    answer = with_agent(credential, work)
    assert (answer.status_code, answer.headers["content-type"]) == (401, "application/problem+json")


def test_a_removed_machine_s_agent_is_refused_at_once(house, machine, credential):
    """Also while its credential is believed without asking the database."""
    actor = factories.actor_of(house.ana)

    async def work(agent):
        await agent.sync()
        await in_thread(machine_remove, machine=machine, actor=actor)
        agent.sequence += 1
        return await agent.client.post(
            wire.SYNC_PATH, headers=agent.headers, content=agent.message(digest="new")
        )

    assert with_agent(credential, work).status_code == 401
