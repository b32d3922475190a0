"""What a change of a machine would do to runs, told before it is made: tried by the engine, in the pass's own order."""

import pytest

from common.errors import Invalid
from machines.models import MachineLabel
from machines.pools import machines_move
from machines.services import machine_cordon, machine_label_set, machine_label_unset
from machines.states import FABRIC_LABEL, RACK_LABEL
from runs.machine_preview import RUNS_TRIED, Preview, machine_preview
from runs.models import Run
from tenancy.models import AuditEvent, Workspace
from tests import factories as make


def waits(house, name, *, gpus=16, machines=2, within="rack", priority=0):
    document = make.document_make(name, gpus=gpus, machines=machines, priority=priority)
    document["spec"]["task_template"]["requested_resources"]["topology"] = {"keep_within": within}
    return make.run_pending(house, name, document=document)


def previewed(house, machine, change, *, visible=None) -> Preview:
    return machine_preview(machine, change, visible=[house.workspace.id] if visible is None else visible)


def label(house, machine, value, *, key=RACK_LABEL, visible=None) -> Preview:
    def change():
        machine_label_set(machine=machine, key=key, value=value, actor=make.actor_of(house.ana))

    return previewed(house, machine, change, visible=visible)


def told(each):
    return [(one.name, one.text) for one in each]


@pytest.fixture
def apart(house):
    """One machine in each rack."""
    return [make.machine_make(house, f"gpu-0{number}", rack=f"r{number}") for number in (1, 2)]


def test_a_run_that_would_start(house, apart):
    waits(house, "tune-9")
    preview = label(house, apart[1], "r1")
    assert told(preview.starts) == [("tune-9", "gpu-01 and gpu-02, one rack on one InfiniBand fabric")]
    assert (preview.could_start, preview.waits, preview.splits) == ((), (), ())
    assert preview.said == "Would start 1 waiting run."
    assert preview.pass_no == 18204


def test_nothing_is_changed(house, apart):
    waits(house, "tune-9")
    version = apart[1].version
    label(house, apart[1], "r1")
    apart[1].refresh_from_db()
    assert apart[1].version == version
    assert not MachineLabel.objects.filter(found=False).exists()
    assert {event.action for event in AuditEvent.objects.all()} == {"run.submit"}


def test_a_run_behind_another_has_room_but_does_not_start(house, apart):
    waits(house, "first", priority=5)
    waits(house, "second")
    preview = label(house, apart[1], "r1")
    assert [one.name for one in preview.starts] == ["first"]
    assert told(preview.could_start) == [
        ("second", "could then start, but runs before it in the queue take the room")
    ]
    assert preview.said == "Would start 1 waiting run; gives room to 1 run behind others."


def test_what_the_quota_forbids_is_told_as_such(house, apart):
    house.workspace.pool_access.update(gpu_cap=8)
    waits(house, "tune-9")
    assert told(label(house, apart[1], "r1").could_start) == [
        ("tune-9", "would have room then, but not within its quota")
    ]


def test_a_run_that_could_no_longer_start(house):
    machines = [make.machine_make(house, f"gpu-0{number}", rack="r1") for number in (1, 2)]
    waits(house, "tune-9")
    preview = label(house, machines[1], "r2")
    assert told(preview.waits) == [("tune-9", "could no longer start")]
    assert preview.said == "Takes the room of 1 waiting run."


def test_a_gang_that_would_be_split(house):
    machines = [make.machine_make(house, f"gpu-0{number}", rack="r1") for number in (1, 2)]
    make.run_start(make.run_place(house, waits(house, "llm-7"), machines))
    words = "runs in r1 and would span r1 and r7. It goes on; a restart needs 2 machines in one rack"
    assert told(label(house, machines[0], "r7").splits) == [("llm-7", words)]
    unknown = "runs in r1 and would span r1 and an unknown rack (gpu-01)"
    assert label(house, machines[0], "").splits[0].text.startswith(unknown)


def test_a_fabric_label_splits_who_needs_one_fabric(house):
    machines = [make.machine_make(house, f"gpu-0{number}") for number in (1, 2)]
    make.run_start(make.run_place(house, waits(house, "llm-7", within="fabric"), machines))
    assert told(label(house, machines[0], "ib-z", key=FABRIC_LABEL).splits) == [
        (
            "llm-7",
            "runs in ib-a and would span ib-a and ib-z. It goes on; a restart needs 2 machines in one fabric",
        )
    ]


def test_a_gang_that_has_left_the_machine_is_not_split(house):
    machines = [make.machine_make(house, f"gpu-0{number}", rack="r1") for number in (1, 2)]
    make.run_fail(make.run_place(house, waits(house, "llm-7"), machines))
    assert not label(house, machines[0], "r7").affects


def test_taking_a_label_back_counts_with_what_was_found(house, apart):
    actor = make.actor_of(house.ana)
    machine_label_set(machine=apart[1], key=RACK_LABEL, value="r1", actor=actor)
    make.run_start(make.run_place(house, waits(house, "llm-7"), apart))
    preview = previewed(
        house, apart[1], lambda: machine_label_unset(machine=apart[1], key=RACK_LABEL, actor=actor)
    )
    assert "would span r1 and r2" in preview.splits[0].text


def test_any_change_of_a_machine_is_tried(house):
    machine = make.machine_make(house, "gpu-01")
    actor = make.actor_of(house.ana)
    waits(house, "tune-9", gpus=8, machines=1, within="fabric")
    cordoned = previewed(house, machine, lambda: machine_cordon(machine=machine, actor=actor))
    assert [one.name for one in cordoned.waits] == ["tune-9"]
    house.cluster.pools.create(slug="closed", name="Closed")
    moved = previewed(house, machine, lambda: machines_move(machines=[machine], pool="closed", actor=actor))
    assert [one.name for one in moved.waits] == ["tune-9"]


def test_what_one_may_not_see_has_no_name(house, apart):
    waits(house, "tune-9")
    elsewhere = Workspace.objects.exclude(id=house.workspace.id)[0]
    assert [one.name for one in label(house, apart[1], "r1", visible=[elsewhere.id]).starts] == [
        "a run of another workspace"
    ]


def test_what_placement_does_not_see_affects_nobody(house, apart):
    waits(house, "tune-9")
    preview = label(house, apart[1], "r2")
    assert not preview.affects
    assert preview.said == "No waiting or running run is affected."


def test_a_value_that_is_none_is_refused_as_on_saving(house, apart):
    with pytest.raises(Invalid, match="rack 7"):
        label(house, apart[1], "rack 7")


def test_only_the_first_of_a_long_queue_are_tried_and_that_is_told(house, apart):
    run = waits(house, "tune-9")
    copies = [
        Run(
            workspace=run.workspace,
            cluster=run.cluster,
            name=f"copy-{number}",
            document=run.document,
            queued_at=run.queued_at,
        )
        for number in range(RUNS_TRIED)
    ]
    Run.objects.bulk_create(copies)
    preview = label(house, apart[1], "r1")
    assert (preview.waiting, preview.untried) == (RUNS_TRIED + 1, 1)
    assert [one.name for one in preview.starts] == ["tune-9"]
