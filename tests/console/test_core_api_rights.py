"""Every operation of the API × everybody who might ask. A new endpoint without a line in the table fails."""

import pytest

from console.api import urls
from runs.models import Run
from tenancy.models import Membership, OrganizationMembership, Workspace
from tenancy.services import token_create
from tests import factories

pytestmark = pytest.mark.django_db
BASE = "o/<slug:organization>/w/<slug:workspace>"
READ, WRITE = "read", "write"

OPERATIONS = {
    ("GET", f"{BASE}/runs"): READ,
    ("POST", f"{BASE}/runs"): WRITE,
    ("GET", f"{BASE}/runs/<str:run>"): READ,
    ("DELETE", f"{BASE}/runs/<str:run>"): WRITE,
    ("POST", f"{BASE}/runs/<str:run>/stop"): WRITE,
    ("POST", f"{BASE}/runs/<str:run>/restart"): WRITE,
    ("GET", f"{BASE}/runs/<str:run>/workers"): READ,
    ("GET", f"{BASE}/runs/<str:run>/events"): READ,
    ("GET", f"{BASE}/runs/<str:run>/explanation"): READ,
    ("GET", f"{BASE}/workers/<str:worker>"): READ,
    ("GET", f"{BASE}/workers/<str:worker>/explanation"): READ,
}
"""Method and address → what it needs."""

# Who asks → status of a read and of a write. 404: they may not even know that it is there.
SESSIONS = {
    "nobody": (401, 401),
    "viewer": (200, 403),
    "editor": (200, 200),
    "admin": (200, 200),
    "member": (404, 404),
    "operator": (200, 403),
    "owner": (200, 200),
    "stranger": (404, 404),
    "inactive": (401, 401),
}
TOKENS = {
    # (its maker, its role, of which workspace): …
    ("editor", "editor", "this"): (200, 200),
    ("editor", "viewer", "this"): (200, 403),
    ("viewer", "editor", "this"): (200, 403),  # never above its maker's role
    ("owner", "admin", "this"): (200, 200),
    ("owner", "viewer", "this"): (200, 403),
    ("owner", "admin", "other"): (404, 404),
    ("owner", "owner", None): (200, 200),
    ("operator", "operator", None): (200, 403),
    ("owner", "member", None): (404, 404),
    ("former", "editor", "this"): (404, 404),
    ("stranger", "admin", "this"): (404, 404),
    ("inactive", "editor", "this"): (401, 401),
}


def operations_there() -> set[tuple[str, str]]:
    found = set()
    for pattern in urls.urlpatterns:
        view = getattr(pattern.callback, "cls", None)
        if view is None:
            continue
        methods = {name.upper() for name in ("get", "post", "put", "patch", "delete") if hasattr(view, name)}
        found |= {(method, str(pattern.pattern)) for method in methods}
    return found


def test_every_operation_is_in_the_table():
    assert operations_there() == set(OPERATIONS)


@pytest.fixture
def people(house):
    """One person a role."""
    found = {
        "nobody": None,
        "stranger": house.cyd,
        "viewer": house.vic,
        "editor": house.bea,
        "owner": house.ana,
    }
    for name in ("admin", "inactive", "former"):
        found[name] = factories.user_make(name)
        Membership.objects.create(workspace=house.workspace, user=found[name], role="admin")
    for name in ("member", "operator"):
        found[name] = factories.user_make(name)
        OrganizationMembership.objects.create(organization=house.organization, user=found[name], role=name)
    return found


@pytest.fixture
def run(house) -> Run:
    return factories.run_pending(house)


def ask(client, method: str, pattern: str):
    path = (
        pattern.replace("<slug:organization>", "acme")
        .replace("<slug:workspace>", "vision")
        .replace("<str:run>", "ddp-resnet50")
        .replace("<str:worker>", "ddp-resnet50-0")
    )
    body = {"data": b"{}", "content_type": "application/json"} if (method, pattern) in POSTS else {}
    return client.generic(method, f"/api/v1/{path}", **body)


POSTS = {("POST", f"{BASE}/runs")}
ALLOWED = {200, 202, 409, 422}
"""Rights were enough: it was done, or what was sent is refused for what it is."""


def refusals(client, expected: tuple[int, int]) -> list[str]:
    """What answered otherwise than expected."""
    wrong = []
    for (method, pattern), need in OPERATIONS.items():
        status = ask(client, method, pattern)
        want = expected[0] if need == READ else expected[1]
        fine = status.status_code in ALLOWED if want == 200 else status.status_code == want
        if not fine:
            wrong.append(f"{method} {pattern}: {status.status_code}, not {want}")
        if want != 200 and status.headers["Content-Type"] != "application/problem+json":
            wrong.append(f"{method} {pattern}: {status.headers['Content-Type']}")
        Run.objects.update(wanted="run")
    return wrong


@pytest.mark.parametrize("who", SESSIONS)
def test_a_person_who_is_signed_in(people, run, api, who):
    client = api(people[who])
    if who == "inactive":
        people[who].is_active = False
        people[who].save()

    assert refusals(client, SESSIONS[who]) == []


@pytest.mark.parametrize("token", TOKENS, ids=lambda token: "-".join(map(str, token)))
def test_a_token(house, people, run, api, token):
    maker, role, where = token
    other = Workspace.objects.create(organization=house.organization, slug="audio", name="Audio")
    secret = token_create(
        user=people[maker],
        organization=house.organization,
        workspace={"this": house.workspace, "other": other, None: None}[where],
        role=role,
        name="ci",
    )
    if maker == "former":
        Membership.objects.filter(user=people[maker]).delete()
    if maker == "inactive":
        type(people[maker]).objects.filter(id=people[maker].id).update(is_active=False)
    client = api()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {secret.value}")

    assert refusals(client, TOKENS[token]) == []


def test_a_workspace_of_another_organization_is_not_there(house, people, api):
    for path in ("o/other/w/secret/runs", "o/acme/w/nothing/runs", "o/nowhere/w/vision/runs"):
        assert api(people["owner"]).get(f"/api/v1/{path}").status_code == 404


def test_a_session_needs_its_csrf_token(house):
    from rest_framework.test import APIClient

    client = APIClient(enforce_csrf_checks=True)
    client.force_login(house.bea, backend="allauth.account.auth_backends.AuthenticationBackend")
    response = client.post("/api/v1/o/acme/w/vision/runs", data=b"{}", content_type="application/json")

    assert response.status_code == 403
    assert response.headers["Content-Type"] == "application/problem+json"
    assert "CSRF" in response.json()["detail"]
