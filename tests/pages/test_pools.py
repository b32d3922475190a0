"""The pages of pools: who may use them, which machines are in them, and what a move does before it is made."""

import html

import pytest

from machines.models import Machine, Pool
from machines.pools import pool_data, pool_get
from tenancy.models import AuditEvent
from tests import factories as make

POOLS = "/o/acme/clusters/main/pools"
GPU1 = "/o/acme/clusters/main/machines/gpu-01"


def text(answer) -> str:
    return " ".join(html.unescape(answer.content.decode()).split())


@pytest.fixture
def spare(busy) -> Pool:
    return Pool.objects.create(cluster=busy.cluster, slug="spare", name="Spare")


@pytest.fixture
def one_waits(house) -> None:
    """tune-9 has room on gpu-01 alone, and has not been judged yet."""
    make.machine_make(house, "gpu-01")
    make.run_pending(house, "tune-9", document=make.document_make("tune-9", gpus=8, machines=1))
    Pool.objects.create(cluster=house.cluster, slug="spare", name="Spare")


def test_pools_with_what_is_in_them_and_for_owners_who_may_use_them(busy, spare, ana, vic):
    page = text(ana.get(POOLS))
    assert 'aria-current="page">Pools</a>' in page
    assert '<td>vision</td> <td class="number">6</td> <td class="number">27</td>' in page
    assert '<td>none</td> <td class="number">0</td>' in page
    seen = text(vic.get(POOLS))
    assert "Make a pool" not in seen
    assert "<td>vision</td>" not in seen
    assert '/machines?pool=h100"' in seen


def test_a_pool_is_made_changed_and_removed(busy, ana):
    order = {"name": "fast", "may-vision": "yes", "cap-vision": "64", "guaranteed-vision": "8"}
    answer = ana.post(POOLS, order, follow=True)
    assert "Pool fast is made." in text(answer)
    assert "vision (64 GPUs at most, 8 guaranteed)" in text(answer)
    page = text(ana.get(f"{POOLS}/fast"))
    assert 'value="64"' in page
    assert "No machine is in this pool." in page

    answer = ana.post(f"{POOLS}/fast", {"name": "slow", "title": "Slow", "may-vision": "yes"}, follow=True)
    assert "Pool slow is changed." in text(answer)
    assert pool_data(pool_get(busy.cluster, "slow")) == {
        "name": "slow",
        "title": "Slow",
        "workspaces": {"vision": {"gpu_cap": None, "guaranteed_gpus": 0}},
    }
    assert "Pool slow is removed." in text(ana.post(f"{POOLS}/slow", {"remove": "1"}, follow=True))
    actions = AuditEvent.objects.filter(action__startswith="pool.").order_by("id")
    assert [each.action for each in actions] == ["pool.create", "pool.change", "pool.remove"]


@pytest.mark.parametrize(
    ("field", "typed", "field_told", "problem"),
    [
        ("name", "No", "name", "`No` is not a name."),
        ("name", "h100", "name", "main has a pool `h100` already."),
        ("cap-vision", "many", "cap-vision", "`many` is no number of GPUs."),
        ("cap-vision", "4", "guaranteed-vision", "vision can't be guaranteed 8 GPUs"),
    ],
)
def test_what_can_not_be_is_asked_again_at_its_field(busy, ana, field, typed, field_told, problem):
    order = {"name": "fast", "may-vision": "yes", "cap-vision": "64", "guaranteed-vision": "8"}
    answer = ana.post(POOLS, {**order, field: typed})

    assert answer.status_code == 422
    page = text(answer)
    assert f'id="pool-{field_told}-problem">{problem}' in page
    assert f'value="{typed}"' in page
    assert Pool.objects.count() == 1


def test_a_pool_that_is_needed_stays_and_says_why(busy, ana):
    answer = ana.post(f"{POOLS}/h100", {"remove": "1"})

    assert answer.status_code == 409
    assert (
        "h100 can't be removed while machines are in it: gpu-01, gpu-02, gpu-03 and others. Move them"
        in text(answer)
    )


def test_machines_are_put_in_after_what_that_does_is_told(one_waits, ana):
    asked = ana.post(f"{POOLS}/spare/machines", {"machines": "gpu-01, gpu-01"})
    page = text(asked)
    assert "What the move does, tried as of pass 18,204:" in page
    assert "<bdi>tune-9</bdi> could no longer start" in page
    assert Machine.objects.get().pool.slug == "h100"
    assert 'name="seen" value="gpu-01 gpu-01"' in page

    answer = ana.post(
        f"{POOLS}/spare/machines", {"machines": "gpu-01 gpu-01", "seen": "gpu-01 gpu-01"}, follow=True
    )
    assert "gpu-01 is in pool spare now." in text(answer)
    assert "1 machine, 8 of 8 GPUs free" in text(answer)


def test_who_may_use_a_pool_is_changed_after_what_that_does_is_told(one_waits, ana):
    closed = {"name": "h100", "title": "All", "may-vision": "", "cap-vision": "", "guaranteed-vision": ""}
    asked = text(ana.post(f"{POOLS}/h100", closed))
    assert "What saving does, tried as of pass 18,204:" in asked
    assert "<bdi>tune-9</bdi> could no longer start" in asked
    assert "Save anyway</button>" in asked
    assert 'value="All"' in asked
    assert '<option value="" selected>no</option>' in asked
    assert list(pool_data(Pool.objects.get(slug="h100"))["workspaces"]) == ["vision"]

    # Another order than the one whose effects were told is asked back for, too.
    capped = {**closed, "may-vision": "yes", "cap-vision": "4", "seen": ""}
    assert "Save anyway</button>" in text(ana.post(f"{POOLS}/h100", capped))
    answer = ana.post(f"{POOLS}/h100", {**capped, "seen": "vision 4 0"}, follow=True)
    assert "Pool h100 is changed." in text(answer)
    assert pool_data(Pool.objects.get(slug="h100"))["workspaces"]["vision"]["gpu_cap"] == 4


@pytest.mark.parametrize(
    ("typed", "problem"),
    [
        (" , ", "Name the machines that are to be in this pool."),
        ("gpu-01 gpu-99", "There is no machine `gpu-99` in main."),
        ("x " * 201, "201 names are too many at once. Name 200 at most."),
    ],
)
def test_machines_that_can_not_be_put_in(busy, spare, ana, typed, problem):
    answer = ana.post(f"{POOLS}/spare/machines", {"machines": typed})

    assert answer.status_code == 422
    assert problem in text(answer)
    assert not Machine.objects.filter(pool=spare).exists()


def test_a_machine_s_page_tells_what_the_move_does_before_it_is_made(one_waits, ana):
    chosen = ana.get(f"{GPU1}/move?pool=spare", headers={"HX-Request": "true"})
    assert "<bdi>tune-9</bdi> could no longer start" in text(chosen)
    assert "Takes the room of 1 waiting run." in chosen.headers["HX-Trigger"]
    assert ana.get(f"{GPU1}/move?pool=nothing", headers={"HX-Request": "true"}).status_code == 200

    asked = text(ana.post(f"{GPU1}/move", {"pool": "spare"}))
    assert "Move anyway</button>" in asked
    assert "<option selected>spare</option>" in asked
    assert Machine.objects.get().pool.slug == "h100"

    answer = ana.post(f"{GPU1}/move", {"pool": "spare", "seen": "spare"}, follow=True)
    assert "gpu-01 is in pool spare." in text(answer)


def test_operators_move_machines_and_owners_alone_change_pools(busy, spare, client):
    from tenancy.models import OrganizationMembership
    from tests.pages.conftest import signed_in

    olaf = make.user_make("olaf")
    OrganizationMembership.objects.create(organization=busy.organization, user=olaf, role="operator")
    operator = signed_in(olaf)

    page = text(operator.get(f"{POOLS}/spare"))
    assert "Put machines in" in page
    assert "Remove spare" not in page
    assert operator.post(f"{POOLS}/spare", {"name": "mine"}).status_code == 403
    assert operator.post(POOLS, {"name": "mine"}).status_code == 403
    operator.post(f"{POOLS}/spare/machines", {"machines": "gpu-05", "seen": "gpu-05"})
    assert Machine.objects.get(name="gpu-05").pool == spare
