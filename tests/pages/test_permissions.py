"""Every page, every kind of person: what one may not see is 404, what one may see but not do 403."""

import pytest
from django.test import Client
from django.urls import URLPattern

from console.pages import urls
from tenancy.models import ApiToken
from tenancy.services import token_create
from tests import factories as make

W = "/o/acme/w/vision"
RUN = f"{W}/jobs/main/ddp-resnet50"
S = f"{W}/settings"
D = "/o/acme/clusters/main/drives"
F = "/o/acme/clusters/main/fabrics"
M = "/o/acme/clusters/main/machines"
P = "/o/acme/clusters/main/pools"

READ, WRITE, MANAGE, LOOK, OPERATE, OWN = "read", "write", "manage", "look", "operate", "own"
ALLOWED = {
    READ: {"ana", "bea", "vic"},
    WRITE: {"ana", "bea"},
    MANAGE: {"ana"},
    LOOK: {"ana", "bea", "vic"},
    OPERATE: {"ana"},
    OWN: {"ana"},
}
TABLE = {
    "runs": (f"{W}/jobs", READ),
    "queue": (f"{W}/jobs/queue", READ),
    "run_new": (f"{W}/jobs/new", WRITE),
    "runs_stop": (f"{W}/jobs/stop", WRITE),
    "run": (RUN, READ),
    "run_explanation": (f"{RUN}/explanation", READ),
    "run_log": (f"{RUN}/log", READ),
    "run_log_lines": (f"{RUN}/log/lines", READ),
    "run_log_folds": (f"{RUN}/log/folds", READ),
    "run_log_search": (f"{RUN}/log/search", READ),
    # What taking an offer needs depends on the offer: tests/pages/test_run_offer.py.
    "run_offer": (f"{RUN}/offers/00000000", READ),
    "run_metrics": (f"{RUN}/metrics", READ),
    "run_stop": (f"{RUN}/stop", WRITE),
    "run_edit": (f"{RUN}/edit", WRITE),
    "run_restart": (f"{RUN}/restart", WRITE),
    "run_delete": (f"{RUN}/delete", WRITE),
    "worker": (f"{W}/workers/ddp-resnet50-0", READ),
    "settings": (S, READ),
    "secret_add": (f"{S}/secrets", MANAGE),
    "secret": (f"{S}/secrets/hf", MANAGE),
    "credential_add": (f"{S}/credentials", MANAGE),
    "credential": (f"{S}/credentials/ngc", MANAGE),
    "member_add": (f"{S}/members", MANAGE),
    "member": (f"{S}/members/vic", MANAGE),
    "token_add": (f"{S}/tokens", MANAGE),
    "token_revoke": (f"{S}/tokens/1/revoke", MANAGE),
    "fabrics": (F, LOOK),
    "fabric_rename": (f"{F}/ib-a/rename", OPERATE),
    "fabric_use": (f"{F}/ib-a/use", OPERATE),
    "mesh": ("/o/acme/clusters/main/mesh", OPERATE),
    "pools": (P, LOOK),
    "pool": (f"{P}/h100", OPERATE),
    "pool_machines": (f"{P}/h100/machines", OPERATE),
    "drives": (D, OWN),
    "drive": (f"{D}/imagenet", OWN),
    "machines": (M, LOOK),
    "machine_map": (f"{M}/map", LOOK),
    "machine_add": (f"{M}/add", OPERATE),
    "machine": (f"{M}/gpu-01", LOOK),
    "machine_label": (f"{M}/gpu-01/label", OPERATE),
    "machine_cordon": (f"{M}/gpu-01/cordon", OPERATE),
    "machine_uncordon": (f"{M}/gpu-01/uncordon", OPERATE),
    "machine_drain": (f"{M}/gpu-01/drain", OPERATE),
    "machine_move": (f"{M}/gpu-01/move", OPERATE),
    "machine_rename": (f"{M}/gpu-01/rename", OPERATE),
    "machine_health": (f"{M}/gpu-01/health", OPERATE),
    "machine_health_end": (f"{M}/gpu-01/health/end", OPERATE),
    "machine_forget": (f"{M}/gpu-01/forget", OPERATE),
    "machine_revoke": (f"{M}/gpu-01/revoke", OPERATE),
    "machine_remove": (f"{M}/gpu-01/remove", OPERATE),
}
FOR_ANYONE = {
    "home",
    "theme",
    "styleguide",  # nobody's data
    "workspace",  # leads to its runs, whoever asks
    "demo_login",
    "account_login",
    "account_logout",
    "account_change_password",
    "account_inactive",
}
ONLY_POST = {
    *("machine_label", "machine_health_end", "pool_machines"),
    *("secret_add", "credential_add", "member_add", "token_add"),
}


@pytest.fixture
def world(house):
    make.machine_make(house, "gpu-01")
    make.run_pending(house)
    make.stores_make(house)
    token_create(
        user=house.ana,
        organization=house.organization,
        workspace=house.workspace,
        role="viewer",
        name="ci",
    )
    ApiToken.objects.update(id=1)  # as the address in the table has it
    return house


def test_every_address_is_in_the_table():
    names = {pattern.name for pattern in urls.urlpatterns if isinstance(pattern, URLPattern)}
    assert names == set(TABLE) | FOR_ANYONE


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("person", ["ana", "bea", "vic"])
def test_members(world, person, name, request):
    address, need = TABLE[name]
    client = request.getfixturevalue(person)
    answer = client.post(address) if name in ONLY_POST else client.get(address)
    allowed = 422 if name in ONLY_POST else 200
    assert answer.status_code == (allowed if person in ALLOWED[need] else 403)


@pytest.mark.parametrize("name", TABLE)
def test_a_stranger_finds_nothing(world, cyd, name):
    address, _ = TABLE[name]
    for answer in (cyd.get(address), cyd.post(address)):
        assert answer.status_code in {404, 405}
        # The address itself is what they typed.
        assert "ddp-resnet50" not in answer.content.decode().replace(address, "")
    fragment = cyd.get(address, headers={"HX-Request": "true"})
    assert fragment.status_code in {404, 405}


@pytest.mark.parametrize("name", TABLE)
def test_nobody_is_asked_to_sign_in(world, name):
    address, _ = TABLE[name]
    for answer in (Client().get(address), Client().post(address)):
        assert answer.status_code == 302
        assert answer["Location"].startswith("/accounts/login/?next=")


@pytest.mark.parametrize(
    "name", [name for name, (_, need) in TABLE.items() if need in {WRITE, MANAGE, OPERATE, OWN}]
)
def test_a_viewers_post_changes_nothing(world, vic, name):
    from runs.models import Run
    from tenancy.models import AuditEvent

    before = AuditEvent.objects.count()
    assert vic.post(TABLE[name][0], {"name": "ddp-resnet50", "document": "{}"}).status_code == 403
    assert Run.objects.get().wanted == "run"
    assert AuditEvent.objects.count() == before


def test_a_viewer_sees_no_buttons_that_do_nothing(world, vic):
    for address in (f"{W}/jobs", RUN, M, f"{M}/gpu-01"):
        page = vic.get(address).content.decode()
        for word in ("New run</a>", ">Stop</a>", ">Delete</a>", ">Edit</a>", ">Cordon</a>", "Add a machine"):
            assert word not in page


def test_losing_a_role_takes_effect_at_once(world, bea):
    from tenancy.models import Membership

    assert bea.get(RUN).status_code == 200
    Membership.objects.filter(user=world.bea).delete()
    assert bea.get(RUN).status_code == 404
