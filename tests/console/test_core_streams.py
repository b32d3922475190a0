"""Readers and followers of logs: what they get, when it ends, and who may read."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from django.utils import timezone

from console.streams import logs, who
from console.streams.database import in_thread
from console.streams.hub import hub
from machines.silence import machine_mark_unreachable
from runs import logs as run_logs
from runs.events import LIVE_CHANNEL
from runs.models import Assignment, LogChunk
from tenancy.models import Membership
from tests import factories
from tests.support.console import Stream, bearer, in_console, subscribed, until
from tests.support.gangs import SUCCESS, Gang, back_off_over, replaced
from wire.agent_messages import Exit

pytestmark = pytest.mark.django_db(transaction=True)
LOGS = "/api/v1/o/acme/w/vision/workers/solo-0/logs"


def read(token, *queries: str) -> Any:
    """Status and text of the log for each query, without following."""

    async def work(client):
        answers = [await client.get(f"{LOGS}?{query}", headers=token) for query in queries]
        return [(answer.status_code, answer.text) for answer in answers]

    return in_console(work)


# --- Reading -----------------------------------------------------------------------------------------


def test_tail_offset_and_the_whole(worker, token):
    for data in (b"one\ntwo\n", b"three\nfour", b"\nfive\n"):
        factories.log_write(worker, data)
    whole = "one\ntwo\nthree\nfour\nfive\n"

    queries = ["", "tail=1", "tail=2", "tail=3", "tail=5", "tail=9", "tail=0", "offset=4", "offset=24"]
    assert read(token, *queries) == [
        (200, whole),
        (200, "five\n"),
        (200, "four\nfive\n"),
        (200, "three\nfour\nfive\n"),
        (200, whole),
        (200, whole),
        (200, ""),
        (200, "two\nthree\nfour\nfive\n"),
        (200, ""),
    ]


def test_an_unfinished_last_line_counts_as_one(worker, token):
    factories.log_write(worker, b"one\ntwo")

    assert read(token, "tail=1") == [(200, "two")]


def test_since_a_time_or_a_while_ago(worker, token):
    for data, minutes in ((b"old\n", 60), (b"new\n", 1)):
        factories.log_write(worker, data)
        LogChunk.objects.filter(data=data).update(at=timezone.now() - timedelta(minutes=minutes))
    at = (timezone.now() - timedelta(minutes=10)).strftime("%Y-%m-%dT%H:%M:%SZ")
    far = "since=2020-01-01T00:00:00%2b23:59"  # no zone that PostgreSQL would read

    assert read(token, "since=10m", f"since={at}", "since=2h", "since=1s", far) == [
        (200, "new\n"),
        (200, "new\n"),
        (200, "old\nnew\n"),
        (200, ""),
        (200, "old\nnew\n"),
    ]


def test_bad_parameters_are_told(worker, token):
    bad = [
        "tail=-1",
        "tail=x",
        "attempt=0",
        "follow=yes",
        "since=never",
        "since=2026-01-01T00:00:00",
        "since=999999999999d",
        "since=0001-01-01T00:00:00%2b23:59",
        "colour=red",
        "offset=9999999999999999999",
    ]
    assert [status for status, _ in read(token, *bad)] == [400] * len(bad)


def test_the_limit_s_gap_is_told_to_readers_and_ends_readers_by_offset(worker, token, monkeypatch):
    monkeypatch.setattr(run_logs, "HEAD_BYTES", 10)
    monkeypatch.setattr(run_logs, "TAIL_BYTES", 10)
    for number in range(6):
        factories.log_write(worker, b"%09d\n" % number)
    run_logs._trim(worker)
    told = "\n[30 B left out here: the log passed its limit. Its beginning and end are kept.]\n"

    kept = list(LogChunk.objects.values_list("offset", flat=True))
    assert kept[0] == 0
    assert kept[-1] == 50
    gap = kept[1] - 10
    told = told.replace("30 B", f"{gap} B")
    rest = "".join(f"{offset // 10:09d}\n" for offset in kept[1:])
    assert read(token, "", "tail=1") == [(200, f"000000000\n{told}{rest}"), (200, "000000005\n")]
    [(_, by_offset)] = read(token, "offset=0")
    assert by_offset == "000000000\n", "every byte keeps its offset"


def test_a_log_of_many_chunks_is_read_whole(worker, token):
    for number in range(50):
        factories.log_write(worker, b"%d\n" % number)

    assert read(token, "", "tail=40") == [
        (200, "".join(f"{number}\n" for number in range(50))),
        (200, "".join(f"{number}\n" for number in range(10, 50))),
    ]


def test_each_attempt_has_its_log(solo, worker, token):
    factories.log_write(worker, b"first\n")
    solo.end(0, Exit(kind="exited", code=1))
    solo.advance()
    back_off_over(solo)
    replaced(solo)
    factories.log_write(solo.members[0], b"second\n")

    assert read(token, "", "attempt=1", "attempt=2", "attempt=3") == [
        (200, "second\n"),
        (200, "first\n"),
        (200, "second\n"),
        (200, ""),
    ]


def test_a_worker_that_never_ran_has_an_empty_log(house, token):
    factories.run_pending(house, "solo", document=factories.document_make("solo", gpus=8, machines=1))

    assert read(token, "") == [(200, "")]


# --- Following ---------------------------------------------------------------------------------------


def test_a_follower_gets_lines_as_they_come_and_ends_with_the_worker(solo, worker, token):
    factories.log_write(worker, b"one\n")

    async def work(_client):
        await subscribed()
        async with Stream(f"{LOGS}?follow=true", token).opened() as stream:
            await stream.shows(b"one\n")
            assert (stream.status, stream.headers["x-log-attempt"]) == (200, "1")
            assert not stream.ended
            await in_thread(write_and_tell, worker, b"two\n")
            await stream.shows(b"two\n")
            await in_thread(finish, solo, worker, b"three\n")
            return await stream.over()

    assert in_console(work) == b"one\ntwo\nthree\n"


def write_and_tell(worker: Assignment, data: bytes) -> None:
    from common import nudge

    worker.refresh_from_db()
    factories.log_write(worker, data)
    nudge.publish(LIVE_CHANNEL, f"log:{worker.id}")


def finish(solo: Gang, worker: Assignment, last: bytes) -> None:
    """The exit arrives before the last line."""
    worker.refresh_from_db()
    solo.end(0, SUCCESS, log_size=worker.log_size + len(last))
    solo.advance()
    write_and_tell(worker, last)


def test_a_follower_does_not_wait_for_a_machine_that_went_silent(solo, worker, token, monkeypatch):
    """Its worker is known to be over, the end of its log is not here: it arrives when the machine is back."""
    monkeypatch.setattr(logs, "LOOK_AGAIN_SECONDS", 0.1)
    factories.log_write(worker, b"one\n")
    solo.end(0, SUCCESS, log_size=100)
    solo.advance()

    async def work(_client):
        async with Stream(f"{LOGS}?follow=true", token).opened() as stream:
            await stream.shows(b"one\n")
            assert not stream.ended
            await in_thread(machine_mark_unreachable, worker.machine)
            return await stream.over()

    assert in_console(work) == b"one\n"


def test_a_follower_without_wake_ups_looks_by_itself(solo, worker, token, monkeypatch):
    monkeypatch.setattr(logs, "LOOK_AGAIN_SECONDS", 0.1)

    async def work(_client):
        async with Stream(f"{LOGS}?follow=true&tail=0", token).opened() as stream:
            await until(lambda: stream.status)
            await in_thread(factories.log_write, worker, b"silent\n")
            await stream.shows(b"silent\n")

    in_console(work)


def test_a_follower_waits_for_a_worker_that_is_not_placed_yet(house, token):
    run = factories.run_pending(house, "solo", document=factories.document_make("solo", gpus=8, machines=1))

    async def work(_client):
        async with Stream(f"{LOGS}?follow=true", token).opened() as stream:
            await asyncio.sleep(0.2)
            assert not stream.ended
            await in_thread(place_and_end, house, run)
            return await stream.over()

    assert in_console(work) == b"done\n"


def place_and_end(house, run) -> None:
    factories.machine_make(house, "gpu-01")
    gang = replaced(Gang(run)).start()
    factories.log_write(gang.members[0], b"done\n")
    gang.end(0, SUCCESS, log_size=5)
    gang.advance()


def test_a_follower_ends_when_the_run_leaves_the_queue_for_good(house, token, bea):
    from runs.gang.apply import run_advance
    from runs.services import run_stop

    run = factories.run_pending(house, "solo", document=factories.document_make("solo", gpus=8, machines=1))
    run_stop(run=run, actor=bea)

    async def work(_client):
        async with Stream(f"{LOGS}?follow=true", token).opened() as stream:
            await in_thread(run_advance, run.id)
            return await stream.over()

    assert in_console(work) == b""


def test_followers_end_with_the_server_and_those_who_leave_are_forgotten(worker, token):
    async def work(_client):
        await subscribed()
        async with Stream(f"{LOGS}?follow=true", token).opened() as stays:
            async with Stream(f"{LOGS}?follow=true", token).opened() as leaves:
                await asyncio.sleep(0.3)
                assert (stays.status, leaves.status) == (200, 200)
                assert len(hub._waiting[f"log:{worker.id}"]) == 2
            assert len(hub._waiting[f"log:{worker.id}"]) == 1
            hub.close()
            await stays.over()

    in_console(work)


# --- Who may -----------------------------------------------------------------------------------------


def test_who_may_read_a_log(house, worker):
    def session(user) -> dict[str, str]:
        client = Client()
        client.force_login(user, backend="allauth.account.auth_backends.AuthenticationBackend")
        return {
            "Cookie": f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"
        }

    expired = bearer(house, expires_at=timezone.now() - timedelta(seconds=1))
    asked = [
        ({}, 401),
        ({"Authorization": "Bearer ast_wrong"}, 401),
        ({"Authorization": "Bearer"}, 401),
        (expired, 401),
        (bearer(house), 200),
        (session(house.vic), 200),
        (session(house.ana), 200),
        (session(house.cyd), 404),
    ]

    async def work(client):
        return [(await client.get(LOGS, headers=headers)).status_code for headers, _ in asked]

    assert in_console(work) == [status for _, status in asked]


def test_what_is_not_there_is_not_found(worker, token):
    base = "/api/v1/o/acme/w"
    paths = [
        f"{base}/vision/workers/nobody/logs",
        f"{base}/vision/workers/a%00b/logs",
        f"{base}/nowhere/workers/solo-0/logs",
        "/live/runs/999999",
        "/live/nothing/1",
        "/live/runs/x",
    ]

    async def work(client):
        answers = [await client.get(path, headers=token) for path in paths]
        assert {answer.headers["content-type"] for answer in answers} == {"application/problem+json"}
        return [answer.status_code for answer in answers]

    assert in_console(work) == [404] * len(paths)


def test_logs_are_only_read(worker, token):
    response = in_console(lambda client: client.post(LOGS, headers=token))

    assert (response.status_code, response.headers["allow"]) == (405, "GET")


def test_a_followed_log_ends_when_the_right_to_read_is_gone(house, worker, monkeypatch):
    monkeypatch.setattr(who, "RIGHTS_SECONDS", 0.2)
    monkeypatch.setattr(logs, "LOOK_AGAIN_SECONDS", 0.1)
    factories.log_write(worker, b"before\n")
    headers = bearer(house, house.vic)

    async def work(_client):
        async with Stream(f"{LOGS}?follow=true", headers).opened() as stream:
            await stream.shows(b"before")
            await in_thread(lambda: Membership.objects.filter(user=house.vic).delete())
            await stream.over()
            await in_thread(factories.log_write, worker, b"after\n")
        return stream.body

    assert in_console(work) == b"before\n"


def test_a_head_of_a_log_reads_none_of_it(worker, token, monkeypatch):
    factories.log_write(worker, b"words\n")
    monkeypatch.setattr(logs, "log_pieces", None)

    async def work(client):
        return await client.head(LOGS, headers=token)

    answer = in_console(work)
    assert (answer.status_code, answer.headers["x-log-offset"], answer.content) == (200, "0", b"")
