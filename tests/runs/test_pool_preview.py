"""What opening or closing a pool, or another cap or guaranteed part, would do to runs, told before it is made."""

import pytest

from common.errors import Invalid
from machines.models import Machine, WorkspacePool
from machines.pools import Share, pool_change, pool_data, pool_get
from runs.pool_preview import pool_preview
from tenancy.models import AuditEvent, Workspace
from tests import factories as make


def waits(house, name, *, gpus=8, machines=1):
    return make.run_pending(house, name, document=make.document_make(name, gpus=gpus, machines=machines))


def previewed(house, shares, *, visible=None, **fields):
    pool = pool_get(house.cluster, "h100")

    def change():
        pool_change(pool=pool, actor=make.actor_of(house.ana), workspaces=shares, **fields)

    return pool_preview(pool, change, visible=[house.workspace.id] if visible is None else visible)


def told(each):
    return [(one.name, one.text) for one in each]


CLOSED = "runs where its workspace could start nothing any more. It goes on; a restart needs another pool"
ABOVE = "would be above what its workspace may use. It goes on; a restart would wait"


@pytest.fixture
def two(house):
    return [make.machine_make(house, f"gpu-0{number}") for number in (1, 2)]


def test_opening_a_pool_lets_a_run_start(house, two):
    WorkspacePool.objects.all().delete()
    waits(house, "tune-9")
    preview = previewed(house, {"vision": Share()})
    assert [one.name for one in preview.starts] == ["tune-9"]
    assert (preview.could_start, preview.waits, preview.over) == ((), (), ())
    assert preview.said == "Would start 1 waiting run."


def test_closing_a_pool_takes_room_and_leaves_what_runs(house, two):
    make.run_start(make.run_place(house, waits(house, "llm-7"), two[:1]))
    waits(house, "tune-9")
    waits(house, "too-large-today", gpus=16, machines=2)
    preview = previewed(house, {})
    assert told(preview.waits) == [
        ("tune-9", "could no longer start"),
        ("too-large-today", "could no longer start"),
    ]
    assert told(preview.over) == [("llm-7", CLOSED)]
    assert preview.said == "Takes the room of 2 waiting runs; leaves 1 running run above what is allowed."


def test_a_cap_tells_who_is_above_it_and_who_never_fits_below_it(house, two):
    make.run_start(make.run_place(house, waits(house, "first"), two[:1]))
    make.run_start(make.run_place(house, waits(house, "second"), two[1:]))
    waits(house, "wide", gpus=16, machines=2)
    assert told(previewed(house, {"vision": Share(8)}).over) == [("second", ABOVE)]
    assert told(previewed(house, {"vision": Share(8)}).waits) == [("wide", "could no longer start")]
    assert not previewed(house, {"vision": Share(16)}).affects


def test_a_raised_cap_lets_a_run_start_and_what_is_above_already_is_not_told_again(house, two):
    house.workspace.pool_access.update(gpu_cap=4)
    make.run_start(make.run_place(house, waits(house, "llm-7"), two[:1]))
    waits(house, "tune-9")
    assert [one.name for one in previewed(house, {"vision": Share(16)}).starts] == ["tune-9"]
    assert not previewed(house, {"vision": Share(6)}).affects


def test_what_is_guaranteed_to_others_takes_room_and_gives_it_back(house, two):
    audio = Workspace.objects.create(organization=house.organization, slug="audio", name="Audio")
    waits(house, "tune-9", gpus=16, machines=2)
    shares = {"vision": Share(), "audio": Share(guaranteed_gpus=8)}
    assert told(previewed(house, shares).waits) == [("tune-9", "could no longer start")]
    WorkspacePool.objects.create(workspace=audio, pool=house.pool, guaranteed_gpus=8)
    assert [one.name for one in previewed(house, {"vision": Share()}).starts] == ["tune-9"]


def test_a_preemptible_run_that_would_only_borrow(house, two):
    house.workspace.pool_access.update(guaranteed_gpus=8)
    run = waits(house, "llm-7")
    run.document["spec"]["preemptible"] = True
    run.save()
    make.run_start(make.run_place(house, run, two[:1]))
    text = (
        "runs on GPUs that would not be guaranteed to its workspace any more: "
        "others could have it stopped for theirs"
    )
    assert told(previewed(house, {"vision": Share()}).over) == [("llm-7", text)]


def test_nothing_is_changed_and_a_new_name_affects_nobody(house, two):
    waits(house, "tune-9")
    before = pool_data(pool_get(house.cluster, "h100"))
    preview = previewed(house, {}, name="h100-nvl")
    assert [one.name for one in preview.waits] == ["tune-9"]
    assert not previewed(house, {"vision": Share()}, name="h100-nvl").affects
    assert pool_data(pool_get(house.cluster, "h100")) == before
    assert {event.action for event in AuditEvent.objects.all()} == {"run.submit"}
    assert Machine.objects.get(name="gpu-01").version == two[0].version


def test_what_one_may_not_see_has_no_name_and_a_bad_order_is_refused_as_on_saving(house, two):
    waits(house, "tune-9")
    assert [one.name for one in previewed(house, {}, visible=[]).waits] == ["a run of another workspace"]
    with pytest.raises(Invalid, match="nowhere"):
        previewed(house, {"nowhere": Share()})
