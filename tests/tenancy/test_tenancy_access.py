"""Who may do what, by the database of now."""

from datetime import timedelta

import pytest
from django.utils import timezone

from common.errors import Forbidden, Invalid, NotFound
from common.problem import problem_of
from common.secrets import secret_digest
from tenancy.access import (
    Actor,
    organization_for,
    organization_grants,
    workspace_for,
    workspace_grants,
    workspaces_of,
)
from tenancy.authentication import bearer_of, token_find
from tenancy.models import ApiToken, Membership, Workspace
from tenancy.roles import Permission
from tenancy.services import token_create
from tests import factories

pytestmark = pytest.mark.django_db
P = Permission


def make(house, user, role, *, workspace=True, **values):
    return token_create(
        user=user,
        organization=house.organization,
        workspace=house.workspace if workspace else None,
        role=role,
        name="ci",
        **values,
    ).value


# --- Roles -------------------------------------------------------------------------------------------


def test_what_one_may_not_see_is_not_there_and_what_one_may_not_do_says_so(house):
    stranger, viewer = factories.actor_of(house.cyd), factories.actor_of(house.vic)
    with pytest.raises(NotFound):
        workspace_for(stranger, "acme", "vision", P.READ_RUNS)
    with pytest.raises(NotFound):
        workspace_for(viewer, "acme", "nothing", P.READ_RUNS)
    assert workspace_for(viewer, "acme", "vision", P.READ_RUNS) == house.workspace
    with pytest.raises(Forbidden) as refused:
        workspace_for(viewer, "acme", "vision", P.WRITE_RUNS)

    assert refused.value.message == (
        "Your role does not allow you to submit, stop, restart and delete runs. An admin or owner can change it."
    )


def test_machines_are_read_by_members_and_operated_by_operators(house):
    assert organization_grants(factories.actor_of(house.vic), house.organization) == {P.READ_MACHINES}
    assert organization_grants(factories.actor_of(house.cyd), house.organization) == frozenset()
    assert organization_grants(factories.actor_of(house.ana), house.organization) == frozenset(P)
    with pytest.raises(Forbidden):
        organization_for(factories.actor_of(house.bea), "acme", P.OPERATE_MACHINES)
    with pytest.raises(NotFound):
        organization_for(factories.actor_of(house.cyd), "acme", P.READ_MACHINES)


def test_losing_a_role_takes_effect_at_once(house):
    actor = factories.actor_of(house.bea)
    assert P.WRITE_RUNS in workspace_grants(actor, house.workspace)
    Membership.objects.filter(user=house.bea).update(role="viewer")
    assert P.WRITE_RUNS not in workspace_grants(actor, house.workspace)
    Membership.objects.filter(user=house.bea).delete()
    assert workspace_grants(actor, house.workspace) == {P.READ_MACHINES}, "she is still a member of Acme"


@pytest.mark.parametrize("name", ["ana", "bea"])
def test_somebody_who_is_no_longer_active_may_nothing(house, name):
    user = getattr(house, name)
    user.is_active = False
    user.save()

    assert workspace_grants(factories.actor_of(user), house.workspace) == frozenset()
    assert organization_grants(factories.actor_of(user), house.organization) == frozenset()
    assert workspaces_of(factories.actor_of(user)) == []


def test_the_workspaces_of_a_person(house):
    Workspace.objects.create(organization=house.organization, slug="audio", name="Audio")

    assert [each.slug for each in workspaces_of(factories.actor_of(house.ana))] == ["audio", "vision"]
    assert [each.slug for each in workspaces_of(factories.actor_of(house.bea))] == ["vision"]
    assert [each.slug for each in workspaces_of(factories.actor_of(house.cyd))] == ["secret"]


@pytest.mark.parametrize(
    ("role", "workspace", "seen"),
    [("viewer", True, ["vision"]), ("owner", False, ["audio", "vision"]), ("member", False, [])],
)
def test_the_workspaces_of_a_token_in_one_query(house, role, workspace, seen, django_assert_num_queries):
    Workspace.objects.create(organization=house.organization, slug="audio", name="Audio")
    token = token_find(make(house, house.ana, role, workspace=workspace))
    assert token is not None

    with django_assert_num_queries(1):
        found = workspaces_of(Actor(house.ana, token))
    assert [each.slug for each in found] == seen


# --- Tokens ------------------------------------------------------------------------------------------


def test_a_token_is_shown_once_and_kept_as_a_digest(house):
    value = make(house, house.bea, "editor")
    token = ApiToken.objects.get()

    assert value.startswith("ast_")
    assert token.prefix == value[:12]
    assert token.digest == secret_digest(value)
    assert value not in str(ApiToken.objects.values())
    assert token_find(value) == token
    assert token_find(value[:-1]) is None


def test_a_token_that_expired_or_was_revoked_is_none(house):
    value = make(house, house.bea, "editor", expires_at=timezone.now() + timedelta(hours=1))
    assert token_find(value) is not None
    ApiToken.objects.update(expires_at=timezone.now())
    assert token_find(value) is None
    ApiToken.objects.update(expires_at=None, revoked_at=timezone.now())
    assert token_find(value) is None


def test_the_last_use_is_written_once_a_minute(house):
    value = make(house, house.bea, "editor")
    used = ApiToken.objects.values_list("last_used_at", flat=True)
    token_find(value)
    [first] = used.all()
    token_find(value)
    assert list(used.all()) == [first]

    past = timezone.now() - timedelta(seconds=61)
    ApiToken.objects.update(last_used_at=past)
    token_find(value)
    assert not used.filter(last_used_at=past).exists()


@pytest.mark.parametrize(
    ("workspace", "role"), [(True, "owner"), (True, "operator"), (False, "editor"), (True, "king")]
)
def test_a_role_of_the_other_kind_is_refused(house, workspace, role):
    with pytest.raises(Invalid, match="is no role of this token"):
        make(house, house.ana, role, workspace=workspace)

    assert not ApiToken.objects.exists()


@pytest.mark.parametrize(
    ("header", "value"),
    [(b"Bearer abc", "abc"), (b"bearer abc", "abc"), (b"Basic abc", None), (b"", None), (b"  ", None)],
)
def test_the_authorization_header(header, value):
    assert bearer_of(header) == value


@pytest.mark.parametrize("header", [b"Bearer", b"Bearer a b"])
def test_a_malformed_header_is_told(header):
    with pytest.raises(ValueError, match="Bearer <token>"):
        bearer_of(header)


def test_an_error_as_the_api_words_it():
    assert problem_of(NotFound()) == {
        "type": "about:blank",
        "title": "Nothing here that you may see",
        "status": 404,
        "detail": "Nothing here that you may see.",
        "code": "not_found",
        "errors": [],
    }
