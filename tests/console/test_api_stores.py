"""Secrets, registry credentials and drives over the API."""

import json
import logging

import pytest

from machines.models import DataVolume
from tenancy.models import AuditEvent, Membership, OrganizationMembership, RegistryCredential, Secret
from tests import factories
from tests.support.console import send

pytestmark = pytest.mark.django_db
W = "/api/v1/o/acme/w/vision"
C = "/api/v1/o/acme/clusters/main"
VALUE = "hf_a-value-that-nobody-sees"


@pytest.fixture
def admin(house, api):
    user = factories.user_make("adi")
    OrganizationMembership.objects.create(organization=house.organization, user=user)
    Membership.objects.create(workspace=house.workspace, user=user, role="admin")
    return api(user)


@pytest.fixture
def owner(house, api):
    return api(house.ana)


def errors(answer) -> list[tuple[str, str]]:
    return [(each["path"], each["code"]) for each in answer.json()["errors"]]


# --- Secrets -----------------------------------------------------------------------------------------


def test_a_secret_is_written_and_never_shown(house, admin, caplog):
    caplog.set_level(logging.DEBUG)
    answers = [
        send(admin, "POST", f"{W}/secrets", {"name": "hf", "value": VALUE}),
        admin.get(f"{W}/secrets"),
        admin.get(f"{W}/secrets/hf"),
        send(admin, "PATCH", f"{W}/secrets/hf", {"value": VALUE + "-2"}),
        send(admin, "POST", f"{W}/secrets", {"name": "hf", "value": VALUE}),
        send(admin, "POST", f"{W}/secrets", {"name": "HF", "value": VALUE}),
        send(admin, "POST", f"{W}/secrets", {"name": "hf", "value": [VALUE]}),
        send(admin, "POST", f"{W}/secrets", {"name": "hf", "valeu": VALUE}),
    ]
    assert [answer.status_code for answer in answers] == [201, 200, 200, 200, 409, 422, 422, 422]
    assert set(answers[0].json()) == {"name", "created_at", "changed_at", "changed_by"}
    assert (answers[0].json()["name"], answers[0].json()["changed_by"]) == ("hf", "adi")
    for answer in answers:
        assert VALUE not in answer.content.decode()
    assert VALUE not in caplog.text
    assert VALUE not in json.dumps(list(AuditEvent.objects.values("before", "after", "target", "action")))


def test_a_secret_is_removed(house, admin):
    send(admin, "POST", f"{W}/secrets", {"name": "hf", "value": VALUE})

    assert admin.delete(f"{W}/secrets/hf").status_code == 204
    assert admin.delete(f"{W}/secrets/hf").status_code == 404
    assert Secret.objects.count() == 0


def test_editors_see_which_secrets_there_are(house, admin, api):
    for name in ("hf", "aws", "wandb"):
        send(admin, "POST", f"{W}/secrets", {"name": name, "value": VALUE})
    bea = api(house.bea)

    first = bea.get(f"{W}/secrets", {"limit": 2}).json()
    assert ([item["name"] for item in first["items"]], first["next"]) == (["aws", "hf"], "hf")
    last = bea.get(f"{W}/secrets", {"limit": 2, "cursor": "hf"}).json()
    assert ([item["name"] for item in last["items"]], last["next"]) == (["wandb"], None)
    assert send(bea, "PATCH", f"{W}/secrets/hf", {"value": VALUE}).status_code == 403


@pytest.mark.parametrize(
    ("order", "found"),
    [
        ({"name": "hf", "value": "short"}, [("value", "too_short")]),
        ({"name": "hf", "value": "x" * 32_769}, [("value", "too_long")]),
        ({"name": "hf", "value": "with-a-nul-\x00"}, [("value", "bad_text")]),
        ({"name": "hf"}, [("value", "missing")]),
    ],
)
def test_a_bad_secret(house, admin, order, found):
    answer = send(admin, "POST", f"{W}/secrets", order)
    assert (answer.status_code, errors(answer)) == (422, found)


# --- Registry credentials ----------------------------------------------------------------------------


def test_a_registry_credential_is_written_and_its_password_never_shown(house, admin):
    order = {"name": "ngc", "registry": "nvcr.io", "username": "$oauthtoken", "secret": VALUE}
    made = send(admin, "POST", f"{W}/registry-credentials", order)
    changed = send(admin, "PATCH", f"{W}/registry-credentials/ngc", {"secret": VALUE + "-2"})

    assert (made.status_code, changed.status_code) == (201, 200)
    assert {key: made.json()[key] for key in ("name", "registry", "username")} == {
        "name": "ngc",
        "registry": "nvcr.io",
        "username": "$oauthtoken",
    }
    assert admin.get(f"{W}/registry-credentials").json()["items"] == [
        admin.get(f"{W}/registry-credentials/ngc").json()
    ]
    for answer in (made, changed, admin.get(f"{W}/registry-credentials")):
        assert VALUE not in answer.content.decode()
    assert admin.delete(f"{W}/registry-credentials/ngc").status_code == 204
    assert RegistryCredential.objects.count() == 0


def test_a_bad_credential_has_all_its_errors(house, admin):
    order = {"name": "ngc", "registry": "https://nvcr.io", "username": "me", "secret": ""}
    answer = send(admin, "POST", f"{W}/registry-credentials", order)

    assert errors(answer) == [("registry", "bad_registry"), ("secret", "too_short")]
    assert answer.json()["errors"][0]["message"] == (
        "`https://nvcr.io` is no registry. Write its host name, with a port where it needs one: `nvcr.io`, "
        "`registry.example.com:5000`."
    )


# --- Drives ------------------------------------------------------------------------------------------


def test_an_owner_makes_a_drive_and_the_workspace_sees_it_without_its_path(house, owner, api):
    factories.machine_make(house, "gpu-01")
    order = {"name": "scratch", "kind": "machine", "machine": "gpu-01", "path": "/srv/scratch"}
    made = send(owner, "POST", f"{C}/drives", {**order, "workspaces": {"vision": "write"}})

    assert made.status_code == 201, made.content
    assert {key: made.json()[key] for key in (*order, "pool", "reach", "workspaces")} == {
        **order,
        "pool": None,
        "reach": "local",
        "workspaces": {"vision": "write"},
    }
    assert owner.get(f"{C}/drives").json()["items"] == [made.json()]
    [seen] = api(house.vic).get(f"{W}/drives").json()["items"]
    assert seen == {
        "name": "scratch",
        "cluster": "main",
        "access": "write",
        "kind": "machine",
        "pool": None,
        "machine": "gpu-01",
    }


def test_a_drive_is_changed_in_part_and_removed(house, owner):
    factories.stores_make(house)
    changed = send(owner, "PATCH", f"{C}/drives/imagenet", {"path": "/mnt/imagenet"}).json()
    assert (changed["path"], changed["workspaces"]) == ("/mnt/imagenet", {"vision": "read"})
    closed = send(owner, "PATCH", f"{C}/drives/imagenet", {"workspaces": {}}).json()
    assert (closed["path"], closed["workspaces"]) == ("/mnt/imagenet", {})

    assert owner.delete(f"{C}/drives/imagenet").status_code == 204
    assert DataVolume.objects.count() == 0


@pytest.mark.parametrize(
    ("order", "status", "found"),
    [
        ({"name": "imagenet"}, 409, [("name", "drive")]),
        ({"path": "srv"}, 422, [("path", "bad_path")]),
        ({"kind": "machine"}, 422, [("machine", "unknown_machine")]),
        ({"workspaces": {"vision": "all"}}, 422, [("workspaces.vision", "not_a_choice")]),
        ({"workspaces": {"audio": "read"}}, 422, [("workspaces", "unknown_workspace")]),
    ],
)
def test_a_bad_drive(house, owner, order, status, found):
    factories.stores_make(house)
    given = {"name": "data", "kind": "shared", "path": "/srv/data", **order}
    answer = send(owner, "POST", f"{C}/drives", given)

    assert (answer.status_code, errors(answer)) == (status, found)
    assert DataVolume.objects.count() == 1
