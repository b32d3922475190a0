"""Explanations on drawn clusters: exact sentences for every kind of cause."""

from datetime import timedelta

import pytest

from machines.models import WorkspacePool
from placement import Placement, place
from runs.explanations import explanation_of, worker_explanation_of
from runs.models import DecisionRecord, PassRecord, Reservation, Run, RunAttempt
from runs.scheduling.passes import cluster_pass
from runs.scheduling.request import Lemons, pools_allowed, request_of
from runs.scheduling.snapshot import cluster_load
from tests import factories
from tests.runs.explained import (
    RACK,
    audio_make,
    causes_told,
    changes_told,
    cordoned,
    explained,
    fresh,
    holding,
    in_words,
    limit_of,
    machines_told,
    waiting,
)
from wire.spec import validate_document

pytestmark = pytest.mark.django_db


def reserved_at(run):
    return in_words(Reservation.objects.get(run=run).starts_at)


# --- Fit ------------------------------------------------------------------------------------------------


@pytest.fixture
def mixed(house):
    """One free machine, and one of each that is close to being so: held in part, with a suspect GPU, cordoned."""
    machines = {
        name: factories.machine_make(house, name, **options)
        for name, options in (
            ("gpu-01", {}),
            ("gpu-02", {}),
            ("gpu-03", {"suspect": (5,)}),
            ("gpu-04", {}),
            ("gpu-21", {"model": "A100", "fabric": "ib-b"}),
            ("gpu-22", {"model": "A100", "fabric": "ib-b"}),
        )
    }
    cordoned("gpu-04")
    return machines


def test_every_machine_says_all_that_keeps_it_and_what_would_start_the_run(house, mixed):
    eval_3 = holding(house, "eval-3", mixed["gpu-02"], gpus=4, limit_in=timedelta(minutes=30))
    run = waiting(house)
    told = explained(run)

    assert (told["kind"], told["cause"], told["pass"]) == ("fit", "no_fabric_room", 18205)
    assert told["headline"] == (
        "2 machines with 8 free H100s on one fabric are needed; fabric ib-a has 1 (gpu-01), ib-b has 0."
    )
    assert causes_told(told) == [
        ("order", True, "Nothing goes first: number 1 in the queue."),
        ("fit", False, "No set of machines can hold it now."),
        ("policy", True, "vision has no quota on pool h100."),
    ]
    until = limit_of(eval_3)
    assert machines_told(told) == [
        ("Ready for this run", "gpu-01", "8 of 8 GPUs free"),
        ("Cordoned", "gpu-04", "Cordoned by ops 2 d ago: “changing a cable”; 8 of 8 GPUs free"),
        (
            "GPU not healthy",
            "gpu-03",
            "7 of 8 free GPUs are healthy, 8 needed; GPU 5 is suspect: NVLink errors growing",
        ),
        (
            "Too few free GPUs",
            "gpu-02",
            f"4 of 8 GPUs free, 8 needed; 4 held by eval-3 (until {until} at the latest)",
        ),
        ("Another model", "gpu-21, gpu-22", "A100; H100 is asked"),
    ]
    offered = dict(changes_told(told))
    assert offered["Uncordon gpu-04"] == f"gpu-01 and gpu-04, {RACK}"
    assert offered["Stop eval-3 (4 GPUs) or wait for it to end"] == f"gpu-01 and gpu-02, {RACK}"
    suspect = f"gpu-01 and gpu-03, {RACK}; uses GPU 5 of gpu-03, suspect"
    assert offered["Let GPUs with a warning sign be used too"] == suspect
    assert told["changes_tried"] >= len(told["changes"]) > 3
    assert [(each["name"], each["found"], each["needed"]) for each in told["domains"]] == [
        ("ib-a", 1, 2),
        ("ib-b", 0, 2),
    ]
    at = reserved_at(run)
    assert told["when"]["text"] == f"At the latest {at}, when eval-3 reaches its time limit."
    assert told["when"]["at"] == Reservation.objects.get(run=run).starts_at
    assert told["queue"]["reservation"]["machines"] == ["gpu-01", "gpu-02"]
    assert [(each["kind"], each["cause"], each["text"]) for each in told["history"]] == [
        ("fit", "no_fabric_room", told["headline"])
    ]


def test_an_offered_change_of_the_document_starts_the_run_when_it_is_made(house, mixed):
    holding(house, "eval-3", mixed["gpu-02"], gpus=4)
    run = waiting(house)
    told = explained(run)
    patches = [change["patch"] for change in told["changes"] if change["patch"]]
    assert len(patches) >= 3
    snapshot = cluster_load(house.cluster).snapshot
    for patch in patches:
        document = validate_document(merged(run.document, patch))
        request = request_of(run, document, pools_allowed(run.workspace_id, run.cluster_id), Lemons())
        assert isinstance(place(snapshot, request), Placement), patch


def merged(document, patch):
    """RFC 7396."""
    result = dict(document)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name) or {}, value) if isinstance(value, dict) else value
    return result


def test_changes_to_the_cluster_say_what_to_do_to_what(house, mixed):
    holding(house, "eval-3", mixed["gpu-02"], gpus=4)
    actions = {
        each["code"]: each["action"] for each in explained(waiting(house))["changes"] if each["action"]
    }

    assert actions["uncordon"][0]["code"] == "uncordon"
    assert "gpu-04" in str(actions["uncordon"])
    assert actions["end_run"] == [{"code": "end_run", "runs": [{"name": "eval-3", "gpus": 4}]}]


def test_of_other_workspaces_neither_runs_nor_their_sizes_are_told(house, three):
    audio = audio_make(house)
    run = waiting(house)
    holding(house, "secret-7", three[0], three[1], limit_in=timedelta(hours=1), workspace=audio)
    told = explained(run)

    until = in_words(RunAttempt.objects.get(run__name="secret-7").time_limit_at)
    assert machines_told(told)[1] == (
        "Too few free GPUs",
        "gpu-01, gpu-02",
        f"0 of 8 GPUs free, 8 needed; 8 held by another workspace (until {until} at the latest)",
    )
    waits = [each for each in told["changes"] if each["code"] == "end_run"]
    assert [(each["text"], each["action"]) for each in waits] == [
        ("Wait for a run of another workspace to end", [{"code": "end_run", "runs": []}])
    ]
    at = reserved_at(run)
    assert (
        told["when"]["text"] == f"At the latest {at}, when a run of another workspace reaches its time limit."
    )
    assert "secret-7" not in str(told)


def test_a_holder_without_a_time_limit_means_that_no_time_can_be_given(house, three):
    holding(house, "llm-7", three[0], three[1])
    told = explained(waiting(house))

    assert told["when"] == {
        "at": None,
        "text": "No time can be given: llm-7 has no time limit. 2 machines are reserved for this run.",
    }


def test_where_no_end_of_a_run_helps_that_is_said(house):
    for name in ("gpu-01", "gpu-02"):
        factories.machine_make(house, name)
    cordoned("gpu-02")
    told = explained(waiting(house))

    assert told["when"]["text"] == (
        "No time can be given: no run that ends lifts a cordon. Ask for the machines that are cordoned."
    )
    assert ("Uncordon gpu-02", f"gpu-01 and gpu-02, {RACK}") in changes_told(told)


def test_a_worker_s_explanation_begins_with_what_the_set_lacks(house, three):
    holding(house, "llm-7", three[0], three[1])
    run = waiting(house)
    cluster_pass(house.cluster.id)
    run = fresh(run)
    told = worker_explanation_of(run.workers.get(rank=1), run)

    assert (told["run"], told["worker"]) == ("ddp-resnet50", "ddp-resnet50-1")
    assert told["headline"] == (
        "No fabric has room: 2 machines with 8 free H100s on one fabric are needed; fabric ib-a has 1 (gpu-03)."
    )
    assert told["machines"] == explanation_of(run)["machines"]


# --- Order ------------------------------------------------------------------------------------------------


def test_a_run_behind_a_large_one_is_told_for_whom_machines_are_kept(house, three):
    holding(house, "llm-7", three[0], three[1], limit_in=timedelta(hours=1))
    big = waiting(house, "big", gpus=24, machines=3, priority=10)
    small = waiting(house, "small", gpus=8, machines=1)
    told = explained(small)

    at = reserved_at(big)
    first = (
        f"big goes first (priority 10) and is to get gpu-01, gpu-02 and gpu-03, at {at} at the latest. "
        "This run is number 2."
    )
    assert told["kind"] == "order"
    assert causes_told(told)[:2] == [
        ("order", False, first),
        ("fit", True, "A set of machines can hold it now."),
    ]
    assert told["queue"]["ahead"] == [{"run": "big", "priority": 10, "position": 1}]
    kept = f"Reserved for big, which starts {at} at the latest; 8 of 8 GPUs free"
    assert machines_told(told)[0] == ("Reserved for a run that goes first", "gpu-03", kept)
    assert told["when"] == {
        "at": None,
        "text": (
            "No time can be given: it starts when those that go first have started and leave room for it."
        ),
    }
    assert causes_told(explained(big, after_pass=False))[0] == (
        "order",
        True,
        "Nothing goes first: number 1 in the queue.",
    )


def test_who_goes_first_is_not_named_when_it_is_another_workspace_s(house, three):
    audio = audio_make(house)
    holding(house, "llm-7", three[0])
    big = waiting(house, "big-secret", gpus=24, machines=3, priority=10)
    Run.objects.filter(id=big.id).update(workspace=audio)
    told = explained(waiting(house, "small", gpus=8, machines=1))

    assert told["queue"]["text"] == (
        "A run of another workspace goes first and is to get gpu-01, gpu-02 and gpu-03. This run is number 2."
    )
    assert told["queue"]["ahead"] == [{"run": "another workspace", "priority": None, "position": 1}]
    assert machines_told(told)[0][2].startswith("Reserved for a run of another workspace; ")
    assert "big-secret" not in str(told)


def test_runs_that_go_first_and_keep_nothing_from_it(house, three):
    for number in (1, 2):
        waiting(house, f"huge-{number}", gpus=64, machines=8, priority=10)
    holding(house, "llm-7", *three)
    told = explained(waiting(house))

    assert causes_told(told)[0] == (
        "order",
        True,
        "Number 3 in the queue; the 2 runs that go first keep no machine from it.",
    )


# --- Policy -----------------------------------------------------------------------------------------------


def test_a_cap_is_told_in_numbers_with_who_uses_it_and_when_there_is_room(house, three):
    WorkspacePool.objects.update(gpu_cap=20)
    llm_7 = holding(house, "llm-7", three[0], limit_in=timedelta(hours=1))
    told = explained(waiting(house))

    quota = "Quota: vision may use 20 GPUs of pool h100; 8 are in use (8 by llm-7), 16 are asked, 4 too many."
    assert (told["kind"], told["policy"]["text"]) == ("policy", quota)
    assert causes_told(told)[1:] == [
        ("fit", True, "A set of machines can hold it now."),
        ("policy", False, quota),
    ]
    assert told["policy"]["pools"] == [
        {
            "pool": "h100",
            "cap": 20,
            "guaranteed": 0,
            "used": 8,
            "lent": 0,
            "closed": "pool_cap",
            "used_by": [{"run": "llm-7", "gpus": 8}],
        }
    ]
    at = limit_of(llm_7)
    assert told["when"]["text"] == (
        f"The quota has room at the latest {at}, when llm-7 reaches its time limit."
    )
    assert machines_told(told)[0] == (
        "Pool closed by this workspace's cap",
        "gpu-02, gpu-03",
        "Pool h100: this run would pass the cap of vision, 8 of 20 GPUs in use; 8 of 8 GPUs free",
    )
    assert changes_told(told) == [("Raise this workspace's cap in pool h100", f"gpu-02 and gpu-03, {RACK}")]


def test_a_request_above_the_cap_is_told_that_it_never_starts_with_this_quota(house, three):
    WorkspacePool.objects.update(gpu_cap=12)
    told = explained(waiting(house))

    assert told["policy"]["text"] == (
        "Quota: vision may use 12 GPUs of pool h100; 0 are in use, 16 are asked, 4 too many."
    )
    assert told["when"]["text"] == "Never with this quota: it asks for more than the cap of pool h100."


def test_within_the_quota(house, three):
    WorkspacePool.objects.update(gpu_cap=64)
    holding(house, "llm-7", three[0], three[1])
    told = explained(waiting(house))

    assert told["policy"]["text"] == "Within quota: 16 of 64 GPUs of pool h100 in use; 16 asked."


# --- Never, patience, new ---------------------------------------------------------------------------------


def test_what_can_never_start_is_told_with_what_would_have_to_change(house, three):
    told = explained(waiting(house, "huge", gpus=64, machines=8))

    assert (told["kind"], told["headline"]) == (
        "never",
        (
            "8 machines with 8 H100s on one fabric are needed; "
            "the largest fabric (ib-a) has 3, even when all are free."
        ),
    )
    assert told["when"]["text"] == (
        "Never on this cluster as it stands. "
        "It stays in the queue and is tried again whenever the cluster changes."
    )
    assert causes_told(told)[1] == (
        "fit",
        False,
        "No set of machines of this cluster can hold it, even when all are free, healthy and ready.",
    )
    ever = [change for change in told["changes"] if change["code"].startswith("never.")]
    assert [(change["text"], change["result"]) for change in ever] == [
        ("Machines 3 and GPUs 24 instead of 8 and 64", "possible, then waits")
    ]
    resources = {"machines": 3, "gpu_requests": {"count": 24}}
    assert ever[0]["patch"] == {"spec": {"task_template": {"requested_resources": resources}}}


def test_patience_shows_where_it_could_start_now_and_until_when_it_waits(house):
    machines = [
        factories.machine_make(house, name, rack=rack)
        for name, rack in (("gpu-01", "r1"), ("gpu-02", "r2"), ("gpu-03", "r1"))
    ]
    holding(house, "llm-7", machines[2])
    document = factories.document_make()
    document["spec"]["task_template"]["requested_resources"]["topology"]["patience_seconds"] = 600
    run = factories.run_pending(house, document=document)
    told = explained(run)

    assert told["headline"] == (f"One InfiniBand fabric is free now; waiting up to 10 min for {RACK}")
    since = Run.objects.get(id=run.id).patient_since
    assert since is not None
    until = in_words(since + timedelta(minutes=10))
    assert told["when"]["text"] == (
        f"At the latest {until}, when its patience ends, if there still is room for it."
    )
    assert machines_told(told)[:2] == [
        ("Free for it now", "gpu-01", "Rank 0 with 8 GPUs"),
        ("Free for it now", "gpu-02", "Rank 1 with 8 GPUs"),
    ]
    assert told["changes"] == []


def test_before_the_first_pass_there_is_the_headline_alone(house, three):
    told = explained(waiting(house), after_pass=False)

    assert told["headline"] == "Queued; the next pass is due within seconds"
    assert (told["kind"], told["pass"], told["at"], told["when"]) == ("", None, None, None)
    assert (told["machines"], told["changes"], told["history"]) == ([], [], [])


def test_without_the_pass_s_record_nothing_stale_is_told(house, three):
    holding(house, "llm-7", three[0], three[1])
    run = waiting(house)
    cluster_pass(house.cluster.id)
    DecisionRecord.objects.all().delete()
    PassRecord.objects.all().delete()
    told = explained(run, after_pass=False)

    assert told["headline"].startswith("2 machines with 8 free H100s on one fabric are needed")
    assert (told["pass"], told["machines"], told["changes"]) == (18205, [], [])
    assert len(told["history"]) == 1
