"""Workers that start on their own, as people see and change them: one run, its workers, their variables and shapes."""

import json

import pytest

from common.errors import Conflict, Invalid, NotFound
from runs.desired import desired_load
from runs.editing import run_edit
from runs.explanations import explanation_of, worker_explanation_of
from runs.foresight import run_foresee
from runs.independent.documents import child_document
from runs.models import Run, WorkloadName
from runs.presentation import run_get, run_present, runs_for_display, worker_get
from runs.scheduling.passes import cluster_pass
from tests import factories
from tests.support.families import Family, independent, sweep
from tests.support.gangs import placed
from wire.spec import Shape, validate_document

pytestmark = pytest.mark.django_db


# --- What people see -----------------------------------------------------------------------------


def test_it_is_one_run_in_every_list(house, machines):
    family = independent(house, workers=3)
    assert [run.name for run in Run.objects.of(house.workspace)] == ["sweep"]
    shown = run_present(run_get(workspace=house.workspace, name="sweep"))["status"]
    assert [worker["name"] for worker in shown["workers"]] == ["sweep-0", "sweep-1", "sweep-2"]
    assert [worker["rank"] for worker in shown["workers"]] == [0, 1, 2]
    assert [worker["state"] for worker in shown["workers"]] == ["Placed", "Placed", "Pending"]
    assert {worker["run"] for worker in shown["workers"]} == {"sweep"}
    assert shown["shape"] == [{"machines": 3, "gpus": 8}]
    assert shown["network"]["code"] == "one_machine"
    assert (shown["attempt"], shown["restarts"]) == (1, 0)
    with pytest.raises(NotFound):
        run_get(workspace=house.workspace, name="sweep-0")
    run, worker = worker_get(workspace=house.workspace, name="sweep-1")
    assert (run.id, worker.rank) == (family.run.id, 1)


def test_the_names_of_its_workers_are_taken(house, machines):
    independent(house, workers=2)
    assert set(WorkloadName.objects.values_list("name", flat=True)) == {"sweep", "sweep-0", "sweep-1"}
    with pytest.raises(Conflict, match="a worker of the run `sweep` named `sweep-1`"):
        factories.run_pending(house, "sweep-1")
    with pytest.raises(Conflict, match="has a run named `sweep`"):
        independent(house)


def test_while_all_wait_the_run_says_what_the_first_one_lacks(house, machines):
    placed(house, "holder")
    family = independent(house, workers=2)
    assert family.shown() == (
        "Pending",
        (
            "2 of 2 workers wait. 1 machine with 8 free H100s is needed; none is free now; nearest is gpu-01: "
            "0 of 8 GPUs free, 8 needed; 8 held; 224 GiB of memory free, 800 GiB needed; 0 cores free, 96 needed."
        ),
    )
    told = explanation_of(family.displayed())
    assert told["run"] == "sweep"
    assert told["headline"].startswith("sweep-0: ")
    run, worker = worker_get(workspace=house.workspace, name="sweep-1")
    own = worker_explanation_of(worker, run)
    assert (own["worker"], own["queue"]["position"]) == ("sweep-1", 2)


def test_offers_speak_of_the_whole_run(house, machines):
    """Half the GPUs of each worker are half the GPUs of the document."""
    placed(house, "holder", machines=1)
    document = sweep("big", workers=2, gpus=8)
    factories.run_pending(house, "half", document=factories.document_make("half", gpus=4, machines=1))
    cluster_pass(house.cluster.id)
    family = Family(factories.run_pending(house, "big", document=document))
    family.pass_over()
    changes = {change["code"]: change for change in explanation_of(family.displayed())["changes"]}
    assert changes["fewer_gpus"]["patch"]["spec"]["task_template"] == {
        "requested_resources": {"gpu_requests": {"count": 8}}
    }
    assert changes["fewer_gpus"]["text"] == "Ask for 8 GPUs instead of 16"
    assert not {"machines", "fewer_machines"} & changes.keys()


def test_another_run_is_told_of_one_holder(house, machines):
    independent(house, "sweep", workers=2).start(0, 1)
    waiting = factories.run_pending(house, "waits")
    cluster_pass(house.cluster.id)
    told = explanation_of(runs_for_display(Run.objects.filter(id=waiting.id)).get())
    assert told["machines"][0]["text"].startswith("0 of 8 GPUs free, 8 needed; 8 held by sweep;")
    stop = next(change for change in told["changes"] if change["code"] == "end_run")
    assert stop["action"][0]["runs"] == [{"name": "sweep", "gpus": 16}]
    assert told["policy"]["pools"][0]["used_by"] == [{"run": "sweep", "gpus": 16}]
    assert "sweep has no time limit" in told["when"]["text"]


# --- What a worker gets --------------------------------------------------------------------------


def test_its_variables_name_its_part_and_describe_a_job_of_its_own(house, machines):
    family = independent(house, workers=2)
    [member] = family.alone(1).members
    env = member.launch["env"]
    wanted = {
        "RANK": "1",
        "WORLD_SIZE": "2",
        "ASTRAEUS_REPLICA_INDEX": "1",
        "ASTRAEUS_WORLD_SIZE": "2",
        "ASTRAEUS_GROUP_SIZE": "2",
        "ASTRAEUS_JOB_NAME": "sweep",
        "ASTRAEUS_TASK_NAME": "sweep-1",
        "ASTRAEUS_LEADER_TASK_NAME": "sweep-1",
        "ASTRAEUS_GPU_COUNT": "8",
        "MASTER_ADDR": member.machine.address,
        "PET_NNODES": "1",
        "PET_NODE_RANK": "0",
        "SLURM_PROCID": "0",
        "SLURM_NNODES": "1",
        "SLURM_NTASKS": "1",
        "SLURM_JOB_NODELIST": member.machine.name,
        "SLURM_TASKS_PER_NODE": "1",
    }
    assert {name: env[name] for name in wanted} == wanted
    assert (member.launch["rank"], member.launch["gang"]) == (1, False)


def test_files_stand_in_the_run_once_and_reach_every_worker(house, machines):
    family = independent(house, workers=2)
    assert all("configs" not in worker.run.document["spec"]["task_template"] for worker in family.workers)
    for machine in machines:
        _, desired = desired_load(machine.id)
        assert [(file.path, file.value) for file in desired.assignments[0].files] == [
            ("/app/sweep.py", "print(1)")
        ]


def test_a_worker_s_document_is_a_valid_gang_of_one():
    document = sweep(workers=4, gpus=8)
    resources = document["spec"]["task_template"]["requested_resources"]
    del resources["machines"]
    resources["topology"] = {"min_nodes": 2, "max_nodes": 8, "spread": "machine"}
    whole = validate_document(document)
    alone = validate_document(child_document(whole, 0, Shape(4, 8)))
    assert alone.groups()[0].template.shapes() == (Shape(1, 8),)
    assert (alone.spec.start, alone.spec.on_failure) == ("Gang", "RestartJob")
    assert whole.groups()[0].template.configs != ()


# --- Shapes --------------------------------------------------------------------------------------


def workers_of(document, house) -> list[tuple[int, int]]:
    family = Family(factories.run_pending(house, "open", document=document))
    return [
        (shape["machines"], shape["gpus"]) for shape in run_present(family.displayed())["status"]["shape"]
    ]


def test_a_shape_that_is_left_open_is_fixed_so_that_each_worker_finds_room_on_a_machine(house, machines):
    document = sweep("open", workers=2, gpus=16)
    del document["spec"]["task_template"]["requested_resources"]["machines"]
    assert workers_of(document, house) == [(4, 8)]


def test_of_a_range_the_fewest_machines_are_taken(house, machines):
    document = sweep("open", workers=1, gpus=8)
    resources = document["spec"]["task_template"]["requested_resources"]
    del resources["machines"]
    resources["topology"] = {"min_nodes": 2, "max_nodes": 8}
    assert workers_of(document, house) == [(2, 4)]


def test_workers_of_several_groups(house, machines):
    factories.machine_make(house, "gpu-03")
    document = sweep("mixed", workers=2)
    template = document["spec"].pop("task_template")
    actor = {**template, "command": "actor", "configs": []}
    actor["requested_resources"] = {
        **template["requested_resources"],
        "machines": 1,
        "gpu_requests": {"count": 2},
    }
    document["spec"]["worker_groups"] = [
        {"name": "train", "task_template": template},
        {"name": "actor", "task_template": actor},
    ]
    family = Family(factories.run_pending(house, "mixed", document=document))
    family.pass_over()
    assert [(w.name, w.rank, w.group, w.group_rank) for w in family.workers] == [
        ("mixed-train-0", 0, "train", 0),
        ("mixed-train-1", 1, "train", 1),
        ("mixed-actor-0", 2, "actor", 0),
    ]
    assert family.states() == ["Starting"] * 3
    [member] = family.alone(2).members
    assert (member.launch["command"], len(member.launch["gpu_uuids"])) == ("actor", 2)
    env = member.launch["env"]
    assert (env["RANK"], env["WORLD_SIZE"], env["ASTRAEUS_GROUP_SIZE"]) == ("2", "3", "1")
    _, desired = desired_load(member.machine_id)
    assert desired.assignments[0].files == ()


# --- Editing -------------------------------------------------------------------------------------


def test_an_edit_while_all_wait_changes_the_workers(house, machines, bea):
    placed(house, "holder")
    family = independent(house, workers=2)
    first = family.workers[0].run_id
    run_edit(run=family.run, actor=bea, text=text_of(sweep(workers=3, gpus=4)))
    assert [worker.name for worker in family.workers] == ["sweep-0", "sweep-1", "sweep-2"]
    assert family.workers[0].run_id == first
    counts = {
        w.run.document["spec"]["task_template"]["requested_resources"]["gpu_requests"]["count"]
        for w in family.workers
    }
    assert counts == {4}

    run_edit(run=family.run, actor=bea, text=text_of(sweep(workers=1, gpus=4)))
    assert [worker.name for worker in family.workers] == ["sweep-0"]
    assert Run.objects.filter(parent=family.run).count() == 1
    assert set(WorkloadName.objects.filter(run=family.run).values_list("name", flat=True)) == {
        "sweep",
        "sweep-0",
    }


def test_no_edit_once_a_worker_has_a_place(house, machines, bea):
    family = independent(house, workers=3, passed=False)
    cluster_pass(house.cluster.id)  # the run itself has not gathered it yet
    with pytest.raises(Conflict, match="no longer wait"):
        run_edit(run=family.run, actor=bea, text=text_of(sweep(workers=3)))


def test_an_edit_keeps_the_way_of_starting(house, machines, bea):
    family = independent(house, workers=2, passed=False)
    with pytest.raises(Invalid) as refused:
        run_edit(
            run=family.run, actor=bea, text=text_of(sweep(workers=2, start="Gang", on_failure="FailJob"))
        )
    assert [(error.path, error.code) for error in refused.value.errors] == [("spec.start", "start_differs")]


def text_of(document) -> str:
    return json.dumps(document)


# --- Dry run -------------------------------------------------------------------------------------


def test_a_dry_run_tells_which_could_start_now(house, machines, bea):
    told = run_foresee(workspace=house.workspace, actor=bea, text=text_of(sweep(workers=3)))["placement"]
    assert told["text"] == "gpu-01 and gpu-02, each on its own; 1 of 3 workers would wait"
    assert [(worker["name"], worker["machine"]) for worker in told["workers"]] == [
        ("sweep-0", "gpu-01"),
        ("sweep-1", "gpu-02"),
    ]
    assert told["shape"] == [{"machines": 3, "gpus": 8}]
    assert Run.objects.count() == 0


def test_a_dry_run_of_one_that_can_t_start(house, machines, bea):
    placed(house, "holder")
    told = run_foresee(workspace=house.workspace, actor=bea, text=text_of(sweep(workers=3)))["explanation"]
    assert told["run"] == "sweep"
    assert [change["code"] for change in told["changes"]] == ["end_run"]
