"""Live pages: what they are told, and who may listen."""

import pytest

from console.streams import live, who
from console.streams.database import in_thread
from tenancy.models import Membership
from tests.support.console import Stream, bearer, in_console, subscribed
from tests.support.gangs import SUCCESS

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_live_page_is_told_of_changes(house, solo, token):
    async def work(_client):
        await subscribed()
        run, workspace = f"/live/runs/{solo.run.id}", f"/live/workspaces/{house.workspace.id}"
        async with Stream(run, token).opened() as one, Stream(workspace, token).opened() as all_:
            await one.shows(b": hello")
            await all_.shows(b": hello")
            assert one.headers["content-type"] == "text/event-stream"
            await in_thread(solo.end, 0, SUCCESS)
            await one.shows(b"event: run\ndata: 1\n\n")
            await all_.shows(b"event: runs\ndata: 1\n\n")

    in_console(work)


def test_a_live_page_of_a_stranger_is_not_found(house, solo):
    foreign = house.cyd
    paths = [f"/live/runs/{solo.run.id}", f"/live/workspaces/{house.workspace.id}"]

    async def work(client):
        headers = await in_thread(bearer, house, foreign)
        found = [(await client.get(path, headers=headers)).status_code for path in paths]
        return found + [(await client.get(path)).status_code for path in paths]

    assert in_console(work) == [404, 404, 401, 401]


def test_a_live_page_ends_when_the_right_to_read_is_gone(house, solo, monkeypatch):
    monkeypatch.setattr(who, "RIGHTS_SECONDS", 0.2)
    monkeypatch.setattr(live, "LOOK_SECONDS", 0.1)
    headers = bearer(house, house.vic)

    async def work(_client):
        async with Stream(f"/live/runs/{solo.run.id}", headers).opened() as stream:
            await stream.shows(b": still here")
            await in_thread(lambda: Membership.objects.filter(user=house.vic).delete())
            await stream.over()

    in_console(work)
