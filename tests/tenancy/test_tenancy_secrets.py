"""Secrets and registry credentials: encrypted at rest, written, never shown again."""

from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from common.encryption import Unreadable, is_current, seal, unseal
from common.errors import Conflict, Invalid, NotFound
from tenancy.models import AuditEvent, RegistryCredential, Secret, Workspace
from tenancy.registries import (
    credential_change,
    credential_create,
    credential_find,
    credential_remove,
    registry_of_image,
)
from tenancy.secrets import secret_change, secret_create, secret_find, secret_remove, secret_values
from tests import factories

pytestmark = pytest.mark.django_db
VALUE = "hf_a-value-of-a-token"
OLD, NEW = "o" * 50, "n" * 50


@pytest.fixture
def ana(house):
    return factories.actor_of(house.ana)


@pytest.fixture
def secret(house, ana) -> Secret:
    return secret_create(workspace=house.workspace, name="hf", value=VALUE, actor=ana)


def audited() -> list[tuple[str, str, object, object]]:
    events = AuditEvent.objects.order_by("id")
    return [(event.action, event.target, event.before, event.after) for event in events]


# --- At rest -----------------------------------------------------------------------------------------


def test_a_value_is_encrypted_and_comes_back(house, secret):
    stored = bytes(Secret.objects.get().sealed)

    assert VALUE.encode() not in stored
    assert secret_values(house.workspace.id, ["hf", "other"]) == {"hf": VALUE}
    assert stored != seal(VALUE, secret.owner), "the same value twice is not the same bytes"


def test_a_value_in_another_row_can_t_be_read(house, ana, secret, caplog):
    """Who can write to the database moves no secret to a workspace of their own."""
    mine = Workspace.objects.create(organization=house.organization, slug="mine", name="Mine")
    Secret.objects.create(
        workspace=mine, name="hf", sealed=secret.sealed, changed_at=secret.changed_at, changed_by="eve"
    )

    assert secret_values(mine.id, ["hf"]) == {}
    assert "the secret hf of workspace" in caplog.text
    assert VALUE not in caplog.text


def test_keys_are_rotated(settings, house, secret, ana):
    credential_create(
        workspace=house.workspace,
        name="ngc",
        registry="nvcr.io",
        username="$oauthtoken",
        secret="x",
        actor=ana,
    )
    before = settings.ENCRYPTION_KEYS
    settings.ENCRYPTION_KEYS = [NEW, *before]
    assert secret_values(house.workspace.id, ["hf"]) == {"hf": VALUE}
    assert not is_current(bytes(Secret.objects.get().sealed))

    out = StringIO()
    call_command("secrets_reencrypt", stdout=out)
    call_command("secrets_reencrypt", stdout=out)  # nothing is left to do

    assert out.getvalue() == "2 encrypted anew.\n0 encrypted anew.\n"
    settings.ENCRYPTION_KEYS = [NEW]
    assert secret_values(house.workspace.id, ["hf"]) == {"hf": VALUE}
    credential = RegistryCredential.objects.get()
    assert unseal(bytes(credential.sealed), credential.owner) == "x"


def test_without_its_key_a_value_is_withheld_and_the_command_says_so(settings, house, secret):
    settings.ENCRYPTION_KEYS = [NEW, OLD]

    assert secret_values(house.workspace.id, ["hf"]) == {}
    with pytest.raises(CommandError, match=rf"Secret {secret.id}: it is encrypted under a key that"):
        call_command("secrets_reencrypt", stdout=StringIO())


@pytest.mark.parametrize("sealed", [b"", b"\x01", b"\x02" + bytes(60), b"hf_plain"])
def test_damage_is_told(sealed):
    with pytest.raises(Unreadable):
        unseal(sealed, "secret:1:hf")


def test_a_flipped_bit_is_told():
    sealed = bytearray(seal(VALUE, "secret:1:hf"))
    sealed[-1] ^= 1
    with pytest.raises(Unreadable):
        unseal(bytes(sealed), "secret:1:hf")


# --- Secrets -----------------------------------------------------------------------------------------


def test_what_is_done_stands_in_the_audit_log_without_the_values(house, ana, secret):
    secret_change(secret=secret, value="another-value-of-it", actor=ana)
    secret_remove(secret=secret, actor=ana)
    secret_remove(secret=secret, actor=ana)  # idempotent

    assert audited() == [
        ("secret.create", "hf", None, None),
        ("secret.change", "hf", None, None),
        ("secret.remove", "hf", None, None),
    ]
    with pytest.raises(NotFound):
        secret_find(house.workspace, "hf")


def test_a_name_is_taken_once_in_a_workspace(house, ana, secret):
    with pytest.raises(Conflict) as refused:
        secret_create(workspace=house.workspace, name="hf", value="another-value", actor=ana)
    assert refused.value.message == "vision has a secret `hf` already. Change its value instead."

    other = Workspace.objects.create(organization=house.organization, slug="audio", name="Audio")
    assert secret_create(workspace=other, name="hf", value="another-value", actor=ana).name == "hf"


@pytest.mark.parametrize(
    ("name", "value", "errors"),
    [
        ("HF", VALUE, [("name", "bad_name")]),
        ("hf", "seven77", [("value", "too_short")]),
        ("hf", "   short   \n", [("value", "too_short")]),
        ("hf", "ä" * 4, []),  # bytes count
        ("hf", "with\0nul-in-it", [("value", "bad_text")]),
        ("hf", "half-a-pair-\ud800", [("value", "bad_text")]),
        ("hf", "x" * 32_769, [("value", "too_long")]),
        ("", "", [("name", "bad_name"), ("value", "too_short")]),
    ],
)
def test_values_that_can_t_be_kept(house, ana, name, value, errors):
    if not errors:
        assert secret_create(workspace=house.workspace, name=name, value=value, actor=ana).name == name
        return
    with pytest.raises(Invalid) as refused:
        secret_create(workspace=house.workspace, name=name, value=value, actor=ana)
    assert [(each.path, each.code) for each in refused.value.errors] == errors
    assert not value or value not in str(refused.value.errors), "an error repeats no value"


# --- Registry credentials ----------------------------------------------------------------------------


def test_a_credential_is_changed_in_part(house, ana):
    credential = credential_create(
        workspace=house.workspace,
        name="ngc",
        registry="nvcr.io",
        username="$oauthtoken",
        secret="its-password",
        actor=ana,
    )
    credential_change(credential=credential, actor=ana, username="robot")
    credential_change(credential=credential, actor=ana, secret="another-password")
    credential_remove(credential=credential_find(house.workspace, "ngc"), actor=ana)

    first = {"registry": "nvcr.io", "username": "$oauthtoken"}
    then = {"registry": "nvcr.io", "username": "robot"}
    assert audited() == [
        ("registry_credential.create", "ngc", None, first),
        ("registry_credential.change", "ngc", first, then),
        ("registry_credential.change", "ngc", then, {**then, "secret": "changed"}),
        ("registry_credential.remove", "ngc", then, None),
    ]


@pytest.mark.parametrize(
    ("given", "errors"),
    [
        ({"registry": "https://nvcr.io"}, [("registry", "bad_registry")]),
        ({"registry": "nvcr.io/nvidia"}, [("registry", "bad_registry")]),
        ({"registry": "registry.example.com:5000"}, []),
        ({"username": "a\nb", "secret": " "}, [("username", "bad_text"), ("secret", "too_short")]),
        ({"username": "x" * 201}, [("username", "too_long")]),
    ],
)
def test_credentials_that_are_none(house, ana, given, errors):
    order = {"name": "ngc", "registry": "nvcr.io", "username": "me", "secret": "its-password", **given}
    found = []
    try:
        credential_create(workspace=house.workspace, actor=ana, **order)
    except Invalid as refused:
        found = [(each.path, each.code) for each in refused.errors]
    assert found == errors


@pytest.mark.parametrize(
    ("image", "registry"),
    [
        ("nvcr.io/nvidia/pytorch:24.08-py3", "nvcr.io"),
        ("registry.example.com:5000/a/b", "registry.example.com:5000"),
        ("localhost/a", "localhost"),
        ("pytorch/pytorch:2.4.0", "docker.io"),
        ("python", "docker.io"),
        ("index.docker.io/library/python", "docker.io"),
    ],
)
def test_where_an_image_comes_from(image, registry):
    assert registry_of_image(image) == registry
