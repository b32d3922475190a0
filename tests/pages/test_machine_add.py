"""Add a machine: the one command, shown once, and the page that waits for the machine."""

import html
import re
from pathlib import Path

from django.utils import timezone

from machines.models import JoinToken, Machine, Pool
from machines.services import machine_join
from tenancy.models import AuditEvent

ADD = "/o/acme/clusters/main/machines/add"
FRAGMENT = {"HX-Request": "true"}


def text(answer):
    return html.unescape(answer.content.decode())


def test_looking_at_the_page_makes_no_token(house, ana):
    ana.get(ADD)
    assert not JoinToken.objects.exists()


def test_the_command_is_shown_once_and_waits_for_the_machine(house, ana, settings):
    answer = ana.post(ADD, {"pool": "h100"})
    command = answer.context["command"]
    token = JoinToken.objects.get()
    server = settings.PUBLIC_URL
    found = re.fullmatch(rf"astraeus-agent join --server {server} --token (asj_\S+) --run", command)
    assert found, command
    [secret] = found.groups()
    assert command in text(answer)
    assert "no-cache" in answer["Cache-Control"]
    assert token.created_by == "ana"
    assert AuditEvent.objects.get().action == "join_token.create"
    waiting = ana.get(ADD, {"token": token.id}, headers={"HX-Request": "true"})
    assert "Waiting for the machine… The command works once, for 1 hour." in text(waiting)
    assert "every 2s" in text(waiting)
    assert secret not in text(waiting)
    machine = machine_join(token=secret, name="gpu-17", runtime="docker", agent_version="0.1.0").machine
    joined = text(ana.get(ADD, {"token": token.id}, headers={"HX-Request": "true"}))
    assert "has joined. Waiting for its agent to report what it has…" in joined
    assert "every 2s" in joined
    Machine.objects.filter(id=machine.id).update(last_seen_at=timezone.now())
    here = text(ana.get(ADD, {"token": token.id}, headers={"HX-Request": "true"}))
    assert "<bdi>gpu-17</bdi> is here: no GPUs" in here
    assert "every 2s" not in here


def test_how_the_agent_gets_there_stands_before_and_beside_the_command(house, ana):
    told = "/opt/astraeus-agent/bin/pip install ."
    assert told in text(ana.get(ADD))
    assert told in text(ana.post(ADD))
    assert told in (Path(__file__).parents[2] / "docs/machines.md").read_text()


def test_a_token_of_another_cluster_is_nothing(house, ana):
    for value in ("1", "x", "99999"):
        assert ana.get(ADD, {"token": value}, headers={"HX-Request": "true"}).status_code == 404


def test_the_pool_can_be_chosen(house, ana):
    Pool.objects.create(cluster=house.cluster, slug="a100", name="A100")
    assert "<option>a100</option>" in text(ana.get(ADD)).replace(" selected", "")
    ana.post(ADD, {"pool": "a100"})
    assert JoinToken.objects.get().pool.slug == "a100"
    assert ana.post(ADD, {"pool": "nothing"}).status_code == 404


def test_a_cluster_without_pools_says_so(house, ana):
    Machine.objects.all().delete()
    Pool.objects.all().delete()
    assert "This cluster has no pool yet." in text(ana.get(ADD))
    assert ana.post(ADD).status_code == 404


def test_a_command_is_revoked(house, ana):
    ana.post(ADD, {"pool": "h100"})
    token = JoinToken.objects.get()
    page = text(ana.post(f"{ADD}?token={token.id}"))
    assert "The command can't be used any more." in page
    assert "every 2s" not in page
    assert [event.action for event in AuditEvent.objects.order_by("id")] == [
        "join_token.create",
        "join_token.revoke",
    ]


def test_without_javascript_the_page_can_be_loaded_again(house, ana):
    ana.post(ADD, {"pool": "h100"})
    page = text(ana.get(ADD, {"token": JoinToken.objects.get().id}))
    assert "Waiting for the machine…" in page
    assert "<h1>Add a machine</h1>" in page
