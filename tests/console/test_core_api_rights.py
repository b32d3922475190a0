"""Every operation of the API × everybody who might ask. A new endpoint without a line in the table fails."""

import pytest
from django.db import transaction

from console.api import urls
from machines.models import JoinToken
from machines.services import join_token_create
from tenancy.models import ApiToken, Membership, OrganizationMembership, Workspace
from tenancy.services import token_create
from tests import factories

pytestmark = pytest.mark.django_db
W = "o/<slug:organization>/w/<slug:workspace>"
O = "o/<slug:organization>"  # noqa: E741 - as the addresses have it
C = f"{O}/clusters/<slug:cluster>"
M = f"{C}/machines/<str:machine>"
READ, WRITE, MANAGE, LOOK, OPERATE, OWN = "read", "write", "manage", "look", "operate", "own"
NEEDS = (READ, WRITE, MANAGE, LOOK, OPERATE, OWN)

OPERATIONS = {
    ("GET", f"{W}/runs"): READ,
    ("POST", f"{W}/runs"): WRITE,
    ("GET", f"{W}/runs/<str:run>"): READ,
    ("PUT", f"{W}/runs/<str:run>"): WRITE,
    ("PATCH", f"{W}/runs/<str:run>"): WRITE,
    ("DELETE", f"{W}/runs/<str:run>"): WRITE,
    ("POST", f"{W}/runs/<str:run>/stop"): WRITE,
    ("POST", f"{W}/runs/<str:run>/restart"): WRITE,
    ("GET", f"{W}/runs/<str:run>/workers"): READ,
    ("GET", f"{W}/runs/<str:run>/events"): READ,
    ("GET", f"{W}/runs/<str:run>/metrics"): READ,
    ("GET", f"{W}/runs/<str:run>/explanation"): READ,
    ("GET", f"{W}/workers/<str:worker>"): READ,
    ("GET", f"{W}/workers/<str:worker>/events"): READ,
    ("GET", f"{W}/workers/<str:worker>/explanation"): READ,
    ("GET", f"{W}/members"): MANAGE,
    ("POST", f"{W}/members"): MANAGE,
    ("GET", f"{W}/members/<str:user>"): MANAGE,
    ("PATCH", f"{W}/members/<str:user>"): MANAGE,
    ("DELETE", f"{W}/members/<str:user>"): MANAGE,
    ("GET", f"{W}/tokens"): MANAGE,
    ("POST", f"{W}/tokens"): MANAGE,
    ("GET", f"{W}/tokens/<int:token>"): MANAGE,
    ("DELETE", f"{W}/tokens/<int:token>"): MANAGE,
    ("GET", f"{W}/secrets"): WRITE,
    ("POST", f"{W}/secrets"): MANAGE,
    ("GET", f"{W}/secrets/<str:secret>"): WRITE,
    ("PATCH", f"{W}/secrets/<str:secret>"): MANAGE,
    ("DELETE", f"{W}/secrets/<str:secret>"): MANAGE,
    ("GET", f"{W}/registry-credentials"): WRITE,
    ("POST", f"{W}/registry-credentials"): MANAGE,
    ("GET", f"{W}/registry-credentials/<str:credential>"): WRITE,
    ("PATCH", f"{W}/registry-credentials/<str:credential>"): MANAGE,
    ("DELETE", f"{W}/registry-credentials/<str:credential>"): MANAGE,
    ("GET", f"{W}/drives"): READ,
    ("GET", f"{O}/clusters"): LOOK,
    ("GET", C): LOOK,
    ("PATCH", C): OWN,
    ("GET", f"{C}/pools"): LOOK,
    ("POST", f"{C}/pools"): OWN,
    ("GET", f"{C}/pools/<str:pool>"): LOOK,
    ("PATCH", f"{C}/pools/<str:pool>"): OWN,
    ("DELETE", f"{C}/pools/<str:pool>"): OWN,
    ("GET", f"{C}/fabrics"): LOOK,
    ("GET", f"{C}/fabrics/<str:fabric>"): LOOK,
    ("PATCH", f"{C}/fabrics/<str:fabric>"): OPERATE,
    ("GET", f"{C}/drives"): OWN,
    ("POST", f"{C}/drives"): OWN,
    ("GET", f"{C}/drives/<str:drive>"): OWN,
    ("PATCH", f"{C}/drives/<str:drive>"): OWN,
    ("DELETE", f"{C}/drives/<str:drive>"): OWN,
    ("GET", f"{C}/machines"): LOOK,
    ("GET", M): LOOK,
    ("PATCH", M): OPERATE,
    ("DELETE", M): OPERATE,
    ("POST", f"{M}/cordon"): OPERATE,
    ("POST", f"{M}/uncordon"): OPERATE,
    ("POST", f"{M}/drain"): OPERATE,
    ("PUT", f"{M}/health"): OPERATE,
    ("DELETE", f"{M}/health"): OPERATE,
    ("DELETE", f"{M}/failures"): OPERATE,
    ("DELETE", f"{M}/credentials"): OPERATE,
    ("GET", f"{C}/join-tokens"): OPERATE,
    ("POST", f"{C}/join-tokens"): OPERATE,
    ("GET", f"{C}/join-tokens/<int:token>"): OPERATE,
    ("DELETE", f"{C}/join-tokens/<int:token>"): OPERATE,
    ("GET", f"{O}/tokens"): OPERATE,
    ("POST", f"{O}/tokens"): OPERATE,
    ("GET", f"{O}/tokens/<int:token>"): OPERATE,
    ("DELETE", f"{O}/tokens/<int:token>"): OPERATE,
    ("GET", f"{O}/audit"): OWN,
}
"""Method and address → what it needs."""

# Who asks → status for each of NEEDS. 404: they may not even know that it is there.
SESSIONS = {
    "nobody": (401, 401, 401, 401, 401, 401),
    "viewer": (200, 403, 403, 200, 403, 403),
    "editor": (200, 200, 403, 200, 403, 403),
    "admin": (200, 200, 200, 200, 403, 403),
    "member": (404, 404, 404, 200, 403, 403),
    "operator": (200, 403, 403, 200, 200, 403),
    "owner": (200, 200, 200, 200, 200, 200),
    "stranger": (404, 404, 404, 404, 404, 404),
    "inactive": (401, 401, 401, 401, 401, 401),
}
TOKENS = {
    # (its maker, its role, of which workspace): …
    ("editor", "editor", "this"): (200, 200, 403, 200, 403, 403),
    ("editor", "viewer", "this"): (200, 403, 403, 200, 403, 403),
    ("viewer", "editor", "this"): (200, 403, 403, 200, 403, 403),  # never above its maker's role
    ("owner", "admin", "this"): (200, 200, 200, 200, 403, 403),
    ("owner", "viewer", "this"): (200, 403, 403, 200, 403, 403),
    ("owner", "admin", "other"): (404, 404, 404, 200, 403, 403),
    ("owner", "owner", None): (200, 200, 200, 200, 200, 200),
    ("operator", "operator", None): (200, 403, 403, 200, 200, 403),
    ("owner", "member", None): (404, 404, 404, 200, 403, 403),
    ("former", "editor", "this"): (404, 404, 404, 404, 404, 404),
    ("stranger", "admin", "this"): (404, 404, 404, 404, 404, 404),
    ("inactive", "editor", "this"): (401, 401, 401, 401, 401, 401),
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
def world(house, people) -> dict[str, str]:
    """One of everything that an address can name; the names by the address's pattern."""
    factories.run_pending(house)
    factories.machine_make(house, "gpu-01")
    made = {"organization": house.organization, "name": "made"}
    token_create(user=house.bea, workspace=house.workspace, role="viewer", **made)
    token_create(user=people["operator"], workspace=None, role="operator", **made)
    join_token_create(pool=house.pool, by="ana")
    stores = factories.stores_make(house)
    return {
        "<str:secret>": stores.secret.name,
        "<str:credential>": stores.credential.name,
        "<str:drive>": stores.drive.name,
        "<slug:organization>": "acme",
        "<slug:workspace>": "vision",
        "<slug:cluster>": "main",
        "<str:run>": "ddp-resnet50",
        "<str:worker>": "ddp-resnet50-0",
        "<str:machine>": "gpu-01",
        "<str:fabric>": "ib-a",
        "<str:pool>": "h100",
        "<str:user>": "vic",
        f"{W}/tokens/<int:token>": f"{W}/tokens/{ApiToken.objects.get(role='viewer').id}",
        f"{O}/tokens/<int:token>": f"{O}/tokens/{ApiToken.objects.get(role='operator').id}",
        f"{C}/join-tokens/<int:token>": f"{C}/join-tokens/{JoinToken.objects.get().id}",
    }


BRING_A_BODY = {"POST", "PUT", "PATCH"}
ALLOWED = {200, 201, 202, 204, 409, 422}
"""Rights were enough: it was done, or what was sent is refused for what it is."""


def ask(client, world: dict[str, str], method: str, pattern: str):
    """The answer; whatever it did is undone."""
    path = pattern
    for name, value in sorted(world.items(), key=lambda item: -len(item[0])):
        path = path.replace(name, value)
    body = {"data": b"{}", "content_type": "application/json"} if method in BRING_A_BODY else {}
    with transaction.atomic():
        answer = client.generic(method, f"/api/v1/{path}", **body)
        transaction.set_rollback(True)
    return answer


def refusals(client, world: dict[str, str], expected: tuple[int, ...]) -> list[str]:
    """What answered otherwise than expected."""
    wrong = []
    for (method, pattern), need in OPERATIONS.items():
        answer = ask(client, world, method, pattern)
        want = expected[NEEDS.index(need)]
        fine = answer.status_code in ALLOWED if want == 200 else answer.status_code == want
        if not fine:
            wrong.append(f"{method} {pattern}: {answer.status_code}, not {want}")
        if want != 200 and answer.headers["Content-Type"] != "application/problem+json":
            wrong.append(f"{method} {pattern}: {answer.headers['Content-Type']}")
    return wrong


@pytest.mark.parametrize("who", SESSIONS)
def test_a_person_who_is_signed_in(people, world, api, who):
    client = api(people[who])
    if who == "inactive":
        people[who].is_active = False
        people[who].save()

    assert refusals(client, world, SESSIONS[who]) == []


@pytest.mark.parametrize("token", TOKENS, ids=lambda token: "-".join(map(str, token)))
def test_a_token(house, people, world, api, token):
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

    assert refusals(client, world, TOKENS[token]) == []


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
