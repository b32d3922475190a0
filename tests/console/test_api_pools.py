"""Pools over the API: from their making to their end, and what a change of one would do."""

import pytest

from tests import factories
from tests.support.console import send

pytestmark = pytest.mark.django_db
CLUSTER = "/api/v1/o/acme/clusters/main"
MACHINES = f"{CLUSTER}/machines"


@pytest.fixture
def owner(house, api):
    return api(house.ana)


def test_a_pool_from_its_making_to_its_end(house, machines, owner, api):
    share = {"gpu_cap": 16, "guaranteed_gpus": 8}
    order = {"metadata": {"name": "fast"}, "spec": {"workspaces": {"vision": share}}}
    answer = send(owner, "POST", f"{CLUSTER}/pools", order)
    assert (answer.status_code, answer.json()) == (
        201,
        {
            "metadata": {"name": "fast"},
            "spec": {"title": "fast", "workspaces": {"vision": share}},
            "status": {"machines": 0, "gpus_total": 0, "gpus_free": 0},
        },
    )
    change = {"metadata": {"name": "slow"}, "spec": {"title": "Slow", "workspaces": {}}}
    assert send(owner, "PATCH", f"{CLUSTER}/pools/fast", change).json()["spec"] == {
        "title": "Slow",
        "workspaces": {},
    }
    assert owner.get(f"{CLUSTER}/pools/fast").status_code == 404
    assert api(house.vic).get(f"{CLUSTER}/pools/slow").json()["spec"] == {"title": "Slow", "workspaces": None}

    assert send(owner, "PATCH", f"{MACHINES}/gpu-01", {"spec": {"pool": "slow"}}).status_code == 200
    refused = send(owner, "DELETE", f"{CLUSTER}/pools/slow")
    assert (refused.status_code, refused.json()["code"]) == (409, "in_use")
    assert "while machines are in it: gpu-01." in refused.json()["detail"]
    send(owner, "PATCH", f"{MACHINES}/gpu-01", {"spec": {"pool": "h100"}})
    assert send(owner, "DELETE", f"{CLUSTER}/pools/slow").status_code == 204


def test_what_a_change_of_a_pool_would_do(house, machines, owner):
    factories.run_pending(house, "tune-9", document=factories.document_make("tune-9", gpus=8, machines=1))
    pool = f"{CLUSTER}/pools/h100"
    capped = {"spec": {"workspaces": {"vision": {"gpu_cap": 4}}}}
    assert send(owner, "PATCH", f"{pool}?dry_run=true", capped).json() == {
        "text": "h100 would be open to vision (4 GPUs at most) instead of vision. tune-9 could no longer start.",
        "would_start": [],
        "would_wait": ["tune-9"],
    }
    assert owner.get(pool).json()["spec"]["workspaces"] == {"vision": {"gpu_cap": None, "guaranteed_gpus": 0}}
    named = send(owner, "PATCH", f"{pool}?dry_run=true", {"spec": {"title": "Fast"}}).json()
    assert named["text"] == (
        "h100 would be titled Fast. No run that waits would start, or wait longer, for it."
    )
    assert send(owner, "PATCH", f"{pool}?dry_run=true", {"metadata": {"name": "No"}}).status_code == 422


def test_what_is_wrong_with_a_pool_is_told_at_its_place(house, owner):
    [empty] = owner.get(f"{CLUSTER}/pools").json()["items"]
    assert empty["status"] == {"machines": 0, "gpus_total": 0, "gpus_free": 0}
    share = {"gpu_cap": 8, "guaranteed_gpus": 16}
    order = {"metadata": {"name": "h100"}, "spec": {"workspaces": {"vision": share}}}
    answer = send(owner, "POST", f"{CLUSTER}/pools", order)
    assert [error["path"] for error in answer.json()["errors"]] == ["spec.workspaces.vision.guaranteed_gpus"]
    odd = {"spec": {"workspaces": {"vision": {"gpu_caps": 8}}}}
    [told] = send(owner, "PATCH", f"{CLUSTER}/pools/h100", odd).json()["errors"]
    assert told == {
        "path": "spec.workspaces.vision.gpu_caps",
        "code": "unknown_field",
        "message": "`gpu_caps` is not a field here; did you mean `gpu_cap`?",
    }
    answer = send(owner, "POST", f"{CLUSTER}/pools", {"metadata": {"name": "h100"}})
    assert (answer.status_code, answer.json()["code"]) == (409, "name_taken")
