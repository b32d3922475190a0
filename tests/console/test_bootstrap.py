"""`manage.py bootstrap`: a new console's first organization and owner."""

from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from machines.models import Pool
from tenancy.models import Organization, User, Workspace

pytestmark = pytest.mark.django_db


def bootstrap(*arguments: str) -> str:
    said = StringIO()
    call_command("bootstrap", *arguments, stdout=said)
    return said.getvalue()


def test_an_owner_who_can_sign_in_and_a_pool_for_the_first_machine(client, settings):
    said = bootstrap("acme", "ana", "--workspace", "vision")
    lead, _, password = said.strip().rpartition(" ")

    assert lead == f"{settings.PUBLIC_URL}: sign in as ana with the password"
    assert client.login(username="ana", password=password)
    workspace = Workspace.objects.get(slug="vision")
    assert workspace.default_cluster == "main"
    assert Pool.objects.get().workspace_access.get().workspace == workspace
    assert client.get("/").status_code in {200, 302}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("acme", "bea"), "There is an organization acme already."),
        (("initech", "ana"), "There is somebody called ana already."),
        (("No Slug", "bea"), "No Slug: "),
    ],
)
def test_what_is_there_is_left_alone(arguments, said):
    bootstrap("acme", "ana")
    with pytest.raises(CommandError, match=said):
        bootstrap(*arguments)
    assert Organization.objects.count() == User.objects.count() == 1
