"""Members, API tokens and the audit log over the API."""

import json
from datetime import timedelta

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from tenancy.models import ApiToken, AuditEvent, Membership, OrganizationMembership
from tests import factories
from tests.support.console import send

pytestmark = pytest.mark.django_db
API = "/api/v1/o/acme/w/vision"


@pytest.fixture
def admin(house, api):
    user = factories.user_make("adi")
    OrganizationMembership.objects.create(organization=house.organization, user=user)
    Membership.objects.create(workspace=house.workspace, user=user, role="admin")
    return api(user)


def bearer(secret: str) -> APIClient:
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {secret}")
    return client


# --- Members -----------------------------------------------------------------------------------------


def test_members_are_listed(house, admin):
    items = admin.get(f"{API}/members").json()["items"]

    assert [(item["user"], item["role"]) for item in items] == [
        ("adi", "admin"),
        ("vic", "viewer"),
        ("bea", "editor"),
    ]
    assert admin.get(f"{API}/members/bea").json() == {
        "user": "bea",
        "name": "",
        "email": "bea@example.com",
        "role": "editor",
    }
    assert admin.get(f"{API}/members/ana").status_code == 404


@pytest.mark.parametrize("who", ["ana", "ANA@example.com"])
def test_a_person_of_the_organization_is_added_by_name_or_address(house, admin, who):
    answer = send(admin, "POST", f"{API}/members", {"user": who, "role": "viewer"})

    assert (answer.status_code, answer.json()["user"], answer.json()["role"]) == (201, "ana", "viewer")
    audit = AuditEvent.objects.get()
    assert (audit.action, audit.target, audit.after) == ("member.add", "ana", {"role": "viewer"})


@pytest.mark.parametrize("who", ["cyd", "cyd@example.com", "nobody"])
def test_nobody_learns_who_else_has_an_account(house, admin, who):
    answer = send(admin, "POST", f"{API}/members", {"user": who, "role": "viewer"})

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["message"] == (
        f"acme has no member `{who}`. An owner adds people to the organization first."
    )


def test_a_member_can_t_be_added_twice(house, admin):
    answer = send(admin, "POST", f"{API}/members", {"user": "bea", "role": "viewer"})

    assert (answer.status_code, answer.json()["code"]) == (409, "member")


def test_another_role_counts_at_once(house, admin, api):
    bea = api(house.bea)
    assert send(bea, "POST", f"{API}/runs", factories.document_make("a")).status_code == 201
    assert send(admin, "PATCH", f"{API}/members/bea", {"role": "viewer"}).json()["role"] == "viewer"
    assert send(bea, "POST", f"{API}/runs", factories.document_make("b")).status_code == 403

    assert admin.delete(f"{API}/members/bea").status_code == 204
    assert bea.get(f"{API}/runs").status_code == 404
    actions = [(event.action, event.before, event.after) for event in AuditEvent.objects.order_by("id")[1:]]
    assert actions == [
        ("member.change", {"role": "editor"}, {"role": "viewer"}),
        ("member.remove", {"role": "viewer"}, None),
    ]


@pytest.mark.parametrize(
    ("order", "path"),
    [
        ({"user": "ana", "role": "owner"}, "role"),
        ({"role": "viewer"}, "user"),
        ({"user": "a\nb", "role": "viewer"}, "user"),
    ],
)
def test_a_bad_order(house, admin, order, path):
    answer = send(admin, "POST", f"{API}/members", order)
    assert (answer.status_code, [error["path"] for error in answer.json()["errors"]]) == (422, [path])


# --- Tokens ------------------------------------------------------------------------------------------


def test_a_token_s_secret_is_shown_once(house, admin):
    made = send(admin, "POST", f"{API}/tokens", {"name": "ci", "role": "editor"})
    assert made.status_code == 201
    body = made.json()
    assert bearer(body["secret"]).get(f"{API}/runs").status_code == 200

    listed = admin.get(f"{API}/tokens")
    [item] = listed.json()["items"]
    assert (item["id"], item["name"], item["role"], item["user"], item["prefix"]) == (
        body["id"],
        "ci",
        "editor",
        "adi",
        body["secret"][:12],
    )
    assert item["last_used_at"] is not None
    assert body["secret"] not in listed.content.decode()
    assert body["secret"] not in json.dumps([event.after for event in AuditEvent.objects.all()])


def test_a_revoked_token_is_refused_at_once_and_stays_in_the_list(house, admin):
    body = send(admin, "POST", f"{API}/tokens", {"name": "ci", "role": "viewer"}).json()
    client = bearer(body["secret"])
    assert client.get(f"{API}/runs").status_code == 200

    for _ in range(2):  # idempotent
        assert admin.delete(f"{API}/tokens/{body['id']}").json()["revoked_at"] is not None
    assert client.get(f"{API}/runs").status_code == 401
    assert admin.get(f"{API}/tokens/{body['id']}").json()["name"] == "ci"
    assert [event.action for event in AuditEvent.objects.order_by("id")] == ["token.create", "token.revoke"]


def test_a_token_expires(house, admin):
    order = {"name": "ci", "role": "viewer", "expires_at": (timezone.now() + timedelta(hours=1)).isoformat()}
    body = send(admin, "POST", f"{API}/tokens", order).json()
    assert bearer(body["secret"]).get(f"{API}/runs").status_code == 200
    ApiToken.objects.update(expires_at=timezone.now())
    assert bearer(body["secret"]).get(f"{API}/runs").status_code == 401


def test_a_time_of_any_zone_is_kept_as_the_moment_that_it_is(house, admin):
    order = {"name": "ci", "role": "viewer", "expires_at": "2099-01-01T00:00:00-23:59"}
    assert send(admin, "POST", f"{API}/tokens", order).json()["expires_at"] == "2099-01-01T23:59:00Z"


@pytest.mark.parametrize(
    "moment",
    [
        "2020-01-01T00:00:00Z",
        "2030-01-01",
        "2030-01-01T00:00:00",
        "tomorrow",
        1893456000,
        "9999-99-99T0:0:0Z",
        "9999-12-31T23:59:59-23:59",  # after the year 9999 in UTC
    ],
)
def test_a_time_that_is_over_or_none(house, admin, moment):
    answer = send(admin, "POST", f"{API}/tokens", {"name": "ci", "role": "viewer", "expires_at": moment})
    assert (answer.status_code, [error["path"] for error in answer.json()["errors"]]) == (422, ["expires_at"])


def test_no_token_is_above_its_maker_s_own(house, admin):
    """An admin's token with the role of an admin makes one alike, never one for the organization's machines."""
    secret = send(admin, "POST", f"{API}/tokens", {"name": "a", "role": "admin"}).json()["secret"]
    client = bearer(secret)
    assert send(client, "POST", f"{API}/tokens", {"name": "b", "role": "admin"}).status_code == 201
    answer = send(client, "POST", "/api/v1/o/acme/tokens", {"name": "c", "role": "operator"})
    assert answer.status_code == 403


def test_an_operator_makes_no_owner_s_token_and_sees_only_their_own(house, api):
    user = factories.user_make("ops")
    OrganizationMembership.objects.create(organization=house.organization, user=user, role="operator")
    ops, path = api(user), "/api/v1/o/acme/tokens"
    refused = send(ops, "POST", path, {"name": "x", "role": "owner"})
    assert (refused.status_code, refused.json()["detail"]) == (
        403,
        "A token may not have a role above its maker's, and owner is above yours.",
    )
    assert send(ops, "POST", path, {"name": "mine", "role": "operator"}).status_code == 201
    made = send(api(house.ana), "POST", path, {"name": "hers", "role": "owner"}).json()
    assert [item["name"] for item in ops.get(path).json()["items"]] == ["mine"]
    assert ops.delete(f"{path}/{made['id']}").status_code == 404
    assert [item["name"] for item in api(house.ana).get(path).json()["items"]] == ["hers", "mine"]


def test_a_workspace_s_token_is_none_of_another_one_s(house, admin, api):
    body = send(admin, "POST", f"{API}/tokens", {"name": "ci", "role": "viewer"}).json()
    other = api(house.cyd)
    assert other.get(f"/api/v1/o/other/w/secret/tokens/{body['id']}").status_code == 404
    assert other.delete(f"/api/v1/o/other/w/secret/tokens/{body['id']}").status_code == 404


# --- The audit log -----------------------------------------------------------------------------------


def test_the_audit_log_tells_who_did_what(house, admin, api):
    send(admin, "PATCH", f"{API}/members/bea", {"role": "viewer"})
    [event] = api(house.ana).get("/api/v1/o/acme/audit").json()["items"]

    assert {
        name: event[name] for name in ("actor", "address", "workspace", "action", "target", "before", "after")
    } == {
        "actor": "adi",
        "address": "127.0.0.1",
        "workspace": "vision",
        "action": "member.change",
        "target": "bea",
        "before": {"role": "editor"},
        "after": {"role": "viewer"},
    }
