"""The agents' channel as agents meet it: join, sync, logs."""

import json
from datetime import timedelta

import pytest
from django.utils import timezone

from console.api.machine_answers import machine_reason
from console.streams.database import in_thread
from machines.channel import RIVALS, two_agents_forget
from machines.models import JoinToken, Machine, MachineCredential
from machines.services import join_token_create
from machines.silence import machine_mark_unreachable
from runs.models import Assignment
from runs.scheduling.passes import cluster_place
from tests import factories
from tests.support.console import Agent, in_console, subscribed, with_agent
from tests.support.gangs import note, placed_on, report

pytestmark = pytest.mark.django_db(transaction=True)


def fresh(machine: Machine) -> Machine:
    return Machine.objects.get(id=machine.id)


# --- Join --------------------------------------------------------------------------------------------


def join(token: str, name: str = "gpu-07", **fields):
    body = {"token": token, "name": name, "runtime": "bubblewrap", "agent_version": "0.1.0", **fields}
    response = in_console(lambda client: client.post("/agent/v1/join", json=body))
    return response.status_code, response.json()


def test_a_machine_joins_with_its_token(house):
    status, answer = join(join_token_create(pool=house.pool, by="ana").value)

    assert status == 201
    assert (answer["machine"], answer["cluster"]) == ("gpu-07", "main")
    machine = Machine.objects.get()
    assert (machine.name, machine.pool, machine.runtime, machine.state) == (
        "gpu-07",
        house.pool,
        "bubblewrap",
        "unreachable",
    )
    assert with_agent(answer["credential"], lambda agent: agent.sync()).revision == 1
    assert answer["credential"] not in str(MachineCredential.objects.values())


def test_a_join_token_is_good_for_one_machine(house):
    token = join_token_create(pool=house.pool, by="ana").value
    assert join(token)[0] == 201
    status, answer = join(token, "gpu-08")

    assert (status, answer["detail"]) == (
        403,
        "This join token has been used. Each machine needs one of its own.",
    )
    assert Machine.objects.count() == 1


def test_an_expired_or_unknown_token_is_refused(house):
    token = join_token_create(pool=house.pool, by="ana").value
    JoinToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1))

    assert join(token)[1]["detail"].startswith("This join token has expired.")
    assert join("asj_unknown")[1]["detail"].startswith("This join token is not valid.")
    assert join("asj_unknown")[0] == 403
    assert not Machine.objects.exists()


def test_a_name_that_is_taken_leaves_the_token_unused(house, machine):
    token = join_token_create(pool=house.pool, by="ana").value
    status, answer = join(token, "gpu-01")

    assert status == 409
    assert answer["detail"] == (
        "main has a machine named gpu-01. Join with another --name, or remove it first."
    )
    assert join(token, "gpu-02")[0] == 201


def test_a_join_that_is_none(house):
    token = join_token_create(pool=house.pool, by="ana").value
    bad = [
        ({"name": "GPU 1"}, 422),
        ({"name": ""}, 422),
        ({"runtime": "podman"}, 400),
        ({"token": "x" * 300}, 400),
    ]
    for fields, status in bad:
        found, answer = join(**{"token": token, **fields})
        assert (found, bool(answer["detail"])) == (status, True), fields
    assert not Machine.objects.exists()


# --- Who is it ---------------------------------------------------------------------------------------


def test_a_wrong_credential_is_refused(db):
    async def work(client):
        for path in ("/agent/v1/sync", "/agent/v1/logs"):
            for header in (None, "Bearer asm_wrong", "Basic abc", "Bearer", ""):
                headers = {} if header is None else {"Authorization": header}
                response = await client.post(path, headers=headers, content=b"{}")
                assert response.status_code == 401, (path, header)
                assert response.headers["content-type"] == "application/problem+json"

    in_console(work)


def test_a_revoked_credential_is_refused(machine, credential):
    MachineCredential.objects.update(revoked_at=timezone.now())
    response = with_agent(
        credential, lambda agent: agent.client.post("/agent/v1/sync", headers=agent.headers)
    )

    assert response.status_code == 401


def test_addresses_that_agents_have_not(db):
    bad = [("GET", "/agent/v1/sync", 405), ("POST", "/agent/v1/nothing", 404), ("PUT", "/agent/v1/join", 405)]

    async def work(client):
        for method, path, status in bad:
            response = await client.request(method, path)
            assert response.status_code == status, path
            assert response.headers["content-type"] == "application/problem+json"

    in_console(work)


def test_what_is_no_message_is_refused(machine, credential):
    async def work(agent):
        for body in (b"", b"{", b"[]", b'{"protocol": 1}', b"\xff"):
            response = await agent.client.post("/agent/v1/sync", headers=agent.headers, content=body)
            assert response.status_code == 400, body
            assert response.json()["title"] == "Not a message of this protocol"

    with_agent(credential, work)


def test_a_message_that_is_too_large_is_refused(machine, credential):
    body = b" " * (2 * 1024 * 1024 + 1)
    response = with_agent(
        credential, lambda agent: agent.client.post("/agent/v1/sync", headers=agent.headers, content=body)
    )

    assert response.status_code == 413


def test_an_agent_that_is_too_old_is_told(machine, credential):
    async def work(agent):
        content = agent.message(protocol=0)
        return await agent.client.post("/agent/v1/sync", headers=agent.headers, content=content)

    response = with_agent(credential, work)
    assert (response.status_code, response.json()["title"]) == (426, "Agent too old")


def test_unknown_fields_are_ignored(machine, credential):
    async def work(agent):
        message = {**json.loads(agent.message()), "mood": "fine"}
        return await agent.client.post("/agent/v1/sync", headers=agent.headers, json=message)

    assert with_agent(credential, work).status_code == 200


# --- Sync --------------------------------------------------------------------------------------------


def test_the_first_sync_makes_a_machine_ready_and_stores_what_it_has(house, credential, machine):
    answer = with_agent(credential, lambda agent: agent.sync(digest="d1"))

    assert (answer.revision, answer.stored_digest) == (1, "d1")
    assert answer.desired is not None
    assert answer.desired.assignments == ()
    found = fresh(machine)
    assert (found.state, found.cpu_cores, found.address, found.agent_version) == (
        "ready",
        96,
        "10.20.0.11",
        "0.1.0",
    )
    assert list(found.gpus.filter(present=True).values_list("index", "model")) == [(0, "H100"), (1, "H100")]
    assert found.rdma_ports.count() == 0, "it reported none"


def test_an_assignment_with_its_files_reaches_the_agent(house, machine, credential):
    other = factories.machine_make(house, "gpu-02", gpus=2)
    Machine.objects.update(last_seen_at=timezone.now())
    document = factories.document_make("ddp", gpus=4)
    config = {"mounts": ["/app/a.py", "/app/b.py"], "value": "print(1)\n", "mode": 0o555}
    document["spec"]["task_template"]["configs"] = [config]
    run = factories.run_pending(house, "ddp", document=document)
    cluster_place(house.cluster.id)
    [mine] = with_agent(credential, lambda agent: agent.sync(observed=False)).desired.assignments
    row = Assignment.objects.get(machine=machine)
    assert (mine.id, mine.phase, mine.run, mine.worker, mine.rank) == (
        str(row.id),
        "prepare",
        "ddp",
        "ddp-0",
        0,
    )
    assert mine.env == row.launch["env"]
    assert [(file.path, file.value, file.mode) for file in mine.files] == [
        ("/app/a.py", "print(1)\n", 0o555),
        ("/app/b.py", "print(1)\n", 0o555),
    ]
    assert Assignment.objects.filter(machine=other, attempt__run=run).count() == 1


def test_reports_reach_their_rows(house, machine, credential):
    gang = placed_on(house, machine)

    async def work(agent):
        await agent.sync(digest="d1")
        member = await in_thread(lambda: gang.members[0])
        await agent.sync(report(member, "ready", notes=[note(0, "Sandbox built \x00 here")]), digest="d2")

    with_agent(credential, work)
    member = gang.members[0]
    assert member.state == "Ready"
    assert fresh(machine).observed_digest == "d2"
    texts = [event.reason["text"] for event in member.events.filter(note_number=0)]
    assert texts == ["Sandbox built � here"], "PostgreSQL keeps no NUL, and one must not stop the channel"


def test_a_request_that_arrives_late_is_ignored(house, machine, credential):
    gang = placed_on(house, machine)

    async def work(agent):
        agent.sequence = 5
        await agent.sync(digest="d6")
        agent.sequence = 3
        member = await in_thread(lambda: gang.members[0])
        answer = await agent.sync(report(member, "running"), digest="d4")
        assert (answer.desired, answer.stored_digest) == (None, "d6")

    with_agent(credential, work)
    assert gang.members[0].state == "Placed"
    assert fresh(machine).sequence == 6


def test_absence_counts_only_from_an_agent_that_applied_the_assignment(house, machine, credential):
    gang = placed_on(house, machine)

    async def work(agent):
        await agent.sync(digest="d1")  # its applied revision was 0: it can't know the worker yet
        first = await in_thread(lambda: gang.members[0].state)
        await agent.sync(digest="d2")
        return first, await in_thread(lambda: gang.members[0].state)

    assert with_agent(credential, work) == ("Placed", "Lost")


def test_an_agent_ahead_of_the_database_is_quarantined_and_loses_nothing(house, machine, credential):
    gang = placed_on(house, machine)

    async def work(agent):
        agent.applied = 99
        answers = [await agent.sync(digest="d1")]
        agent.applied = 2
        answers.append(await agent.sync(digest="d2"))
        return answers

    answers = with_agent(credential, work)
    assert [answer.desired for answer in answers] == [None, None]
    assert answers[0].revision == 2
    assert fresh(machine).state == "quarantined"
    assert gang.members[0].state == "Placed", "the database went back in time: absence says nothing"


def test_two_agents_on_one_credential_get_no_starts(house, machine, credential):
    gang = placed_on(house, machine)
    gang.say(0, "ready")
    gang.advance()
    assert gang.phases() == ["start"]

    async def work(client):
        first, second = Agent(client, credential, "a"), Agent(client, credential, "b")
        await first.sync(observed=False, digest="x")
        await second.sync(observed=False, digest="x")
        second.applied = 0
        alone = await second.sync(observed=False, digest="x")
        ignored = await first.sync(observed=False, digest="x")
        second.applied = 0
        fought = await second.sync(observed=False, digest="x")
        assert (alone.warning, ignored.warning, fought.warning) == ("", RIVALS, RIVALS)
        return [answer.desired for answer in (alone, ignored, fought)]

    alone, ignored, fought = in_console(work)
    assert machine_reason(fresh(machine)) == RIVALS
    assert alone.assignments[0].phase == "start"
    assert ignored is None, "the one that was replaced is not heard"
    assert fought.assignments[0].phase == "prepare"

    # A minute later only one of them is there: what was withheld comes, without anybody asking.
    revision = fresh(machine).desired_revision
    two_agents_forget()
    assert fresh(machine).desired_revision == revision
    Machine.objects.update(two_agents_at=timezone.now() - timedelta(seconds=61))
    two_agents_forget()
    assert fresh(machine).desired_revision == revision + 1

    async def alone_again(client):
        second = Agent(client, credential, "b")
        second.sequence = 10
        return await second.sync(observed=False, digest="x")

    answer = in_console(alone_again)
    assert (answer.desired.assignments[0].phase, answer.warning) == ("start", "")


def test_a_machine_that_was_unreachable_is_back_with_its_next_message(machine, credential):
    async def work(agent):
        await agent.sync(digest="d1")
        await agent.sync(digest="d1")
        await in_thread(machine_mark_unreachable, await in_thread(fresh, machine))
        assert (await in_thread(fresh, machine)).state == "unreachable"
        await subscribed()
        await agent.sync(digest="d1", observed=False)

    with_agent(credential, work)
    assert fresh(machine).state == "ready"
