"""Every address there is × whoever must not see what is behind it.

The resolver is walked, so a new address is probed without a line here; one that names what the world below lacks, or
that belongs to nobody and is not listed, fails. What a stranger is answered is compared with the answer to an address
that names nothing at all: then no message, count or preview tells that something is there.
"""

import html
import re
from collections.abc import Iterator

import pytest
from django.db import transaction
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils import timezone

from machines.models import Cluster, JoinToken, Pool
from machines.services import join_token_create
from tenancy.models import ApiToken, Organization, OrganizationMembership, User, Workspace
from tenancy.services import token_create
from tests import factories
from tests.support.console import in_console

OPEN = {
    "",
    *("accounts/login/", "accounts/logout/", "accounts/password/change/", "accounts/inactive/"),
    *("api/docs", "api/schema", "api/schema/run"),
    "^api(?:/|$)",
    *("demo-login/<str:token>", "healthz", "readyz", "styleguide", "theme"),
}
"""Nobody's data."""
Answers = dict[tuple[str, str], tuple[int, str]]
BACKEND = "allauth.account.auth_backends.AuthenticationBackend"
WORDS = ("ddp-resnet50", "kept-back", "Vaulted", "Imagenet-Kept")
"""Of the workspace vision: nobody outside of it reads these."""


def addresses(patterns, before: str = "") -> Iterator[str]:
    for each in patterns:
        address = before + str(each.pattern)
        if isinstance(each, URLResolver):
            yield from addresses(each.url_patterns, address)
        else:
            assert isinstance(each, URLPattern)
            yield address


OURS = sorted(set(addresses(get_resolver().url_patterns)) - OPEN)
"""Of an organization, all of them."""
METHODS = {"api/": ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"), "o/": ("GET", "POST")}


@pytest.fixture
def names(house, running) -> dict[str, str]:
    """One of everything that an address can name; a run that runs and one that waits."""
    factories.run_pending(house, "kept-back")
    made = factories.stores_make(house)
    place = {"organization": house.organization, "user": house.ana, "name": "ci"}
    token_create(**place, workspace=house.workspace, role="viewer")
    join_token_create(pool=house.pool, by="ana")
    return {
        "organization": "acme",
        "workspace": "vision",
        "cluster": "main",
        "run": "ddp-resnet50",
        "worker": "ddp-resnet50-0",
        "offer": "00000000",
        "secret": made.secret.name,
        "credential": made.credential.name,
        "drive": made.drive.name,
        "user": "vic",
        "token": str(ApiToken.objects.get().id),
        "join": str(JoinToken.objects.get().id),
        "machine": "gpu-01",
        "fabric": "ib-a",
        "pool": "h100",
    }


@pytest.fixture
def rival(house) -> User:
    """The owner of another organization that has as much, under other names."""
    other = Organization.objects.create(slug="rival", name="Rival")
    Workspace.objects.create(organization=other, slug="lab", name="Lab")
    cluster = Cluster.objects.create(organization=other, slug="ours", name="Ours")
    Pool.objects.create(cluster=cluster, slug="a100", name="A100")
    owner = factories.user_make("rita")
    OrganizationMembership.objects.create(organization=other, user=owner, role="owner")
    return owner


def filled(pattern: str, names: dict[str, str]) -> str:
    """The pattern's address; KeyError for what the world lacks: name one in `names`."""

    def name(match: re.Match[str]) -> str:
        kind = match[1]
        return names["join" if kind == "token" and "join-tokens" in pattern else kind]

    return "/" + re.sub(r"<\w+:(\w+)>", name, pattern)


def methods_of(pattern: str) -> tuple[str, ...]:
    return next(methods for start, methods in METHODS.items() if pattern.startswith(start))


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user, backend=BACKEND)
    return client


def body_of(answer, said: set[str]) -> str:
    """Without these names, and without what differs from answer to answer."""
    text = html.unescape(answer.content.decode())
    text = re.sub(r'(csrfmiddlewaretoken" value=|X-CSRFToken": |nonce=)"[^"]*"', "", text)
    text = re.sub(r"asj_[-\w]+|\?token=\d+", "", text)  # a join token, new each time
    for value in sorted(said, key=len, reverse=True):
        text = text.replace(value, "…")
    return text


def answers(client: Client, names: dict[str, str], *others: dict[str, str]) -> Answers:
    """Status and body by method and pattern; whatever was done is undone. Names of `others` are left out as well."""
    found = {}
    said = {value for each in (names, *others) for value in each.values()}
    for pattern in OURS:
        for method in methods_of(pattern):
            kind = "application/json" if pattern.startswith("api/") else "application/x-www-form-urlencoded"
            body = b"{}" if pattern.startswith("api/") else b""
            with transaction.atomic():
                answer = client.generic(method, filled(pattern, names), body, kind)
                transaction.set_rollback(True)
            found[method, pattern] = (answer.status_code, body_of(answer, said))
    return found


def differing(there: Answers, empty: Answers) -> dict[tuple[str, str], list[str]]:
    """What is said where something is, and not where nothing is."""
    return {
        key: [str(status), *(line for line in text.splitlines() if line not in empty[key][1].splitlines())]
        for key, (status, text) in there.items()
        if (status, text) != empty[key]
    }


def nothing(names: dict[str, str]) -> dict[str, str]:
    """Names of things that are not there, in place of those that are."""
    return {kind: "9" * 7 if value.isdigit() else f"no-{kind}" for kind, value in names.items()}


@pytest.mark.django_db
def test_a_stranger_is_answered_as_if_nothing_were_there(names, rival):
    client = signed_in(rival)
    gone = nothing(names)
    there, empty = answers(client, names, gone), answers(client, gone, names)

    assert {key: status for key, (status, _) in there.items() if status not in {404, 405}} == {
        (method, "o/<slug:organization>/w/<slug:workspace>"): 302 for method in METHODS["o/"]
    }
    assert differing(there, empty) == {}


@pytest.mark.django_db
def test_an_owner_reaches_nothing_of_others_through_what_is_theirs(names, rival):
    client = signed_in(rival)
    own = {"organization": "rival", "workspace": "lab", "cluster": "ours"}
    theirs, gone = {**names, **own}, {**nothing(names), **own}
    there, empty = answers(client, theirs, gone), answers(client, gone, theirs)
    assert differing(there, empty) == {}


@pytest.mark.django_db
def test_a_member_without_rights_reads_no_name_of_a_workspace_they_are_not_in(house, names):
    member = factories.user_make("mona")
    OrganizationMembership.objects.create(organization=house.organization, user=member, role="member")
    place = {"organization": house.organization, "workspace": None, "user": member, "name": "mona"}
    token = token_create(**place, role="member").value
    with_token = Client(headers={"Authorization": f"Bearer {token}"})
    for client, start in ((signed_in(member), ""), (with_token, "api/")):
        for pattern in (each for each in OURS if each.startswith(start)):
            answer = client.get(filled(pattern, names))
            of_workspace = "<slug:workspace>" in pattern and not pattern.endswith("<slug:workspace>")
            assert answer.status_code in ({404, 405} if of_workspace else {200, 302, 403, 405}), pattern
            told = answer.content.decode().replace(filled(pattern, names), "")
            assert [word for word in WORDS if word in told] == [], pattern


@pytest.mark.django_db
def test_a_revoked_token_opens_nothing(house, names):
    place = {"organization": house.organization, "workspace": None, "user": house.ana, "name": "old"}
    value = token_create(**place, role="owner").value
    ApiToken.objects.filter(name="old").update(revoked_at=timezone.now())
    client = Client(headers={"Authorization": f"Bearer {value}"})
    found = {key: status for key, (status, _) in answers(client, names).items()}

    assert {
        key for key, status in found.items() if status != (401 if key[1].startswith("api/") else 302)
    } == set()


@pytest.mark.django_db(transaction=True)
def test_streams_answer_as_the_rest_does(house, names, rival, running):
    base = "/api/v1/o/acme/w/vision"
    paths = [
        f"{base}/runs/ddp-resnet50/logs",
        f"{base}/workers/ddp-resnet50-0/logs",
        f"{base}/workers/ddp-resnet50-0/logs?follow=true",
        f"/live/runs/{running.run.id}",
        f"/live/runs/{running.run.id}?logs=true",
        f"/live/workspaces/{house.workspace.id}",
    ]
    empty = ["/live/runs/999999", f"{base}/runs/nothing/logs".replace("acme", "nowhere")]
    other = Organization.objects.get(slug="rival")
    foreign = token_create(user=rival, organization=other, workspace=None, role="owner", name="r").value
    revoked = token_create(
        user=house.ana, organization=house.organization, workspace=house.workspace, role="viewer", name="old"
    ).value
    ApiToken.objects.filter(name="old").update(revoked_at=timezone.now())

    async def work(client):
        asked = {
            (who, path): await client.get(path, headers={"Authorization": f"Bearer {token}"})
            for who, token in (("foreign", foreign), ("revoked", revoked))
            for path in [*paths, *empty]
        }
        machine = await client.post(
            "/agent/v1/sync", headers={"Authorization": f"Bearer {foreign}"}, content=b"{}"
        )
        return asked, machine

    asked, machine = in_console(work)
    assert machine.status_code == 401
    assert {
        path: answer.status_code for (who, path), answer in asked.items() if who == "revoked"
    } == dict.fromkeys([*paths, *empty], 401)
    told = {
        path: (answer.status_code, answer.text) for (who, path), answer in asked.items() if who == "foreign"
    }
    assert {each[0] for each in told.values()} == {404}
    assert len({each[1] for each in told.values()}) == 1
