"""The Workspace page and the owners' page of drives: what each sees, does, and is never shown."""

import pytest

from machines.models import DataVolume, WorkspacePool
from tenancy.models import ApiToken, Membership, RegistryCredential, Secret
from tenancy.registries import credential_find
from tenancy.secrets import secret_values
from tests import factories as make
from tests.pages.conftest import signed_in

pytestmark = pytest.mark.django_db
S = "/o/acme/w/vision/settings"
D = "/o/acme/clusters/main/drives"
VALUE = "hf_the-value-of-it"


@pytest.fixture
def stores(house):
    return make.stores_make(house)


@pytest.fixture
def adi(house):
    """Signed in as the workspace's admin."""
    user = make.user_make("adi")
    Membership.objects.create(workspace=house.workspace, user=user, role="admin")
    return signed_in(user)


def text(answer) -> str:
    return " ".join(answer.content.decode().split())


# --- Who sees what -----------------------------------------------------------------------------------


def test_pools_are_shown_with_limits_and_use(house, vic):
    machine = make.machine_make(house, "gpu-01")
    WorkspacePool.objects.update(gpu_cap=64, guaranteed_gpus=8)
    run = make.run_pending(house, document=make.document_make("llm", gpus=8, machines=1))
    make.run_place(house, run, [machine])

    row = text(vic.get(S)).split("<tbody>")[1].split("</tbody>")[0]
    assert [cell.split("<")[0] for cell in row.split('">')[1:]] == ["h100", "8", "64", "8"]


def test_a_viewer_sees_pools_and_drives_and_nothing_else(stores, vic):
    page = text(vic.get(S))
    assert "imagenet" in page
    assert "/srv/imagenet" not in page, "where it lies on the host is for owners"
    for word in ("Secrets", "hf", "Registry credentials", "Members", "API tokens"):
        assert f">{word}<" not in page


def test_an_editor_sees_names_and_no_forms(stores, bea):
    page = text(bea.get(S))
    assert '<span class="name">hf</span>' in page
    assert '<span class="name">ngc</span>' in page
    assert "Add a secret" not in page
    assert ">Members<" not in page


def test_an_admin_sees_everything_but_values(stores, adi):
    page = text(adi.get(S))
    for word in ("Secrets", "Registry credentials", "Members", "API tokens", "Add a secret"):
        assert f">{word}<" in page
    assert VALUE not in page
    assert "its-password" not in page
    assert "Drives of main" not in page, "an admin makes no drives"


# --- Secrets -----------------------------------------------------------------------------------------


def test_a_secret_is_added_changed_and_removed(house, adi):
    added = adi.post(f"{S}/secrets", {"name": " hf ", "value": "line one\r\nline two\r\n"}, follow=True)
    assert "Secret hf is kept." in text(added)
    assert secret_values(house.workspace.id, ["hf"]) == {"hf": "line one\nline two\n"}

    changed = adi.post(f"{S}/secrets/hf", {"value": VALUE}, follow=True)
    assert VALUE not in text(changed)
    assert secret_values(house.workspace.id, ["hf"]) == {"hf": VALUE}

    adi.post(f"{S}/secrets/hf", {"remove": "1"})
    assert Secret.objects.count() == 0


def test_a_secret_that_is_refused_keeps_its_name_and_not_its_value(adi):
    answer = adi.post(f"{S}/secrets", {"name": "HF token", "value": "seven77"})
    page = text(answer)

    assert answer.status_code == 422
    assert 'value="HF token"' in page
    assert "`HF token` is not a name." in page
    assert "A secret has at least 8 bytes" in page
    assert "seven77" not in page
    assert Secret.objects.count() == 0


def test_a_name_that_is_taken(stores, adi):
    answer = adi.post(f"{S}/secrets", {"name": "hf", "value": VALUE})
    assert answer.status_code == 422
    assert "vision has a secret `hf` already. Change its value instead." in text(answer)


# --- Registry credentials ----------------------------------------------------------------------------


def test_a_credential_is_changed_without_its_password(house, stores, adi):
    before = bytes(RegistryCredential.objects.get().sealed)
    page = text(adi.get(f"{S}/credentials/ngc"))
    assert 'value="nvcr.io"' in page
    assert "its-password" not in page

    adi.post(f"{S}/credentials/ngc", {"registry": "nvcr.io", "username": "robot", "secret": ""})
    assert credential_find(house.workspace, "ngc").username == "robot"
    assert bytes(RegistryCredential.objects.get().sealed) == before

    wrong = adi.post(f"{S}/credentials/ngc", {"registry": "https://a", "username": "robot", "secret": "x"})
    assert wrong.status_code == 422
    assert "`https://a` is no registry." in text(wrong)
    adi.post(f"{S}/credentials/ngc", {"remove": "1"})
    assert RegistryCredential.objects.count() == 0


def test_a_credential_is_added(house, adi):
    order = {"name": "hub", "registry": "index.docker.io", "username": "me", "secret": "its-password"}
    assert "Registry credential hub is kept." in text(adi.post(f"{S}/credentials", order, follow=True))
    assert credential_find(house.workspace, "hub").registry == "docker.io"


# --- Members and tokens ------------------------------------------------------------------------------


def test_members_come_change_and_go(house, adi):
    added = adi.post(f"{S}/members", {"user": "ana@example.com", "role": "viewer"}, follow=True)
    assert "ana is viewer of vision." in text(added)
    adi.post(f"{S}/members/ana", {"role": "editor"})
    assert Membership.objects.get(user=house.ana).role == "editor"
    adi.post(f"{S}/members/ana", {"remove": "1"})
    assert not Membership.objects.filter(user=house.ana).exists()


@pytest.mark.parametrize(
    ("order", "told"),
    [
        ({"user": "cyd", "role": "viewer"}, "acme has no member `cyd`."),
        ({"user": "bea", "role": "viewer"}, "bea is a member of vision already."),
        ({"user": "ana", "role": "owner"}, "`owner` is no role. Choose viewer, editor, admin."),
    ],
)
def test_members_that_can_t_be(house, adi, order, told):
    answer = adi.post(f"{S}/members", order)
    assert answer.status_code == 422
    assert told in text(answer)


def test_what_is_wrong_with_a_choice_is_told_at_it(house, adi):
    page = text(adi.post(f"{S}/members", {"user": "ana", "role": "owner"}))
    assert 'name="role" aria-describedby=" member-role-problem" aria-invalid="true"' in page
    assert '<p class="error" id="member-role-problem">' in page


def test_a_token_is_shown_once_and_revoked(house, adi, client):
    made = adi.post(f"{S}/tokens", {"name": "ci", "role": "editor", "expires": "30"})
    value = text(made).split('aria-label="The token">')[1].split("<")[0]
    headers = {"Authorization": f"Bearer {value}"}
    assert client.get("/api/v1/o/acme/w/vision/runs", headers=headers).status_code == 200
    assert value not in text(adi.get(S))
    token = ApiToken.objects.get()
    assert token.expires_at is not None
    assert 29 <= (token.expires_at - token.created_at).days <= 30

    assert "Programs that use" in text(adi.get(f"{S}/tokens/{token.id}/revoke"))
    adi.post(f"{S}/tokens/{token.id}/revoke")
    assert client.get("/api/v1/o/acme/w/vision/runs", headers=headers).status_code == 401
    assert "ci</bdi>" not in text(adi.get(S))


@pytest.mark.parametrize(
    "order",
    [
        {"name": "", "role": "editor", "expires": ""},
        {"name": "x" * 61, "role": "editor", "expires": ""},
        {"name": "ci", "role": "owner", "expires": ""},
        {"name": "ci", "role": "editor", "expires": "1000"},
    ],
)
def test_tokens_that_can_t_be(house, adi, order):
    assert adi.post(f"{S}/tokens", order).status_code == 422
    assert ApiToken.objects.count() == 0


# --- Drives ------------------------------------------------------------------------------------------


def test_owners_find_drives_beside_the_machines(house, ana, vic):
    make.machine_make(house, "gpu-01")
    assert f'<a href="{D}">Drives</a>' in text(ana.get("/o/acme/clusters/main/machines"))
    assert f'<a href="{D}">Drives</a>' not in text(vic.get("/o/acme/clusters/main/machines"))
    assert f'<a href="{D}" aria-current="page">Drives</a>' in text(ana.get(D))


def test_an_owner_makes_changes_and_removes_a_drive(house, ana):
    make.machine_make(house, "gpu-01")
    order = {
        "name": "scratch",
        "kind": "machine",
        "path": "/srv/scratch",
        "machine": "gpu-01",
        "reach": "local",
    }
    made = ana.post(D, {**order, "pool": "", "access-vision": "write"}, follow=True)
    assert "Drive scratch is made." in text(made)
    assert "on gpu-01" in text(made)
    assert "vision (write)" in text(made)

    page = text(ana.get(f"{D}/scratch"))
    assert 'value="/srv/scratch"' in page
    assert '<option value="write" selected>' in page
    ana.post(f"{D}/scratch", {"path": "/mnt/scratch", "reach": "network", "access-vision": "read"})
    drive = DataVolume.objects.get()
    assert (drive.path, drive.reach, drive.access.get().read_only) == ("/mnt/scratch", "network", True)
    ana.post(f"{D}/scratch", {"remove": "1"})
    assert DataVolume.objects.count() == 0


def test_a_drive_that_is_refused(house, ana):
    order = {"name": "data", "kind": "shared", "path": "srv", "reach": "local", "access-nothing": "read"}
    answer = ana.post(D, order)
    assert answer.status_code == 422
    assert "`srv` is relative." in text(answer)
    assert "There is no workspace `nothing` here." in text(answer)


def test_a_shared_drive_is_changed(stores, ana):
    answer = ana.post(f"{D}/imagenet", {"path": "..", "access-vision": ""})
    assert answer.status_code == 422
    ana.post(f"{D}/imagenet", {"path": "/mnt/imagenet", "access-vision": ""})
    drive = DataVolume.objects.get()
    assert (drive.path, drive.access.count()) == ("/mnt/imagenet", 0)
