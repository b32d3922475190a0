"""`GET …/explanation` of runs and workers: the answer keeps its schema, of now and of a time that is past."""

from datetime import timedelta
from urllib.parse import quote

import pytest
from django.utils import timezone

from console.api.explanation_answers import ExplanationAnswer
from runs.models import DecisionRecord
from runs.scheduling.passes import cluster_pass
from tests import factories
from tests.runs.explained import holding, waiting

pytestmark = pytest.mark.django_db
API = "/api/v1/o/acme/w/vision"
HEADLINE = "2 machines with 8 free H100s on one fabric are needed; fabric ib-a has 1 (gpu-03)."


@pytest.fixture
def vic(house, api):
    """A viewer."""
    return api(house.vic)


@pytest.fixture
def waits(house):
    """`ddp-resnet50` waits: `llm-7` has two of three machines."""
    machines = [factories.machine_make(house, f"gpu-0{number}") for number in (1, 2, 3)]
    holding(house, "llm-7", machines[0], machines[1], limit_in=timedelta(hours=1))
    run = waiting(house)
    cluster_pass(house.cluster.id)
    return run


def checked(answer):
    """The answer as the schema has it: what it says must be all that there is."""
    told = answer.json()
    assert answer.status_code == 200, told
    shape = ExplanationAnswer.model_validate(told)
    assert told.keys() <= {field.alias or name for name, field in ExplanationAnswer.model_fields.items()}
    assert shape.headline == told["headline"]
    return told


def test_a_run_that_waits(waits, vic):
    told = checked(vic.get(f"{API}/runs/ddp-resnet50/explanation"))

    assert (told["run"], told["state"], told["kind"], told["headline"]) == (
        "ddp-resnet50",
        "Pending",
        "fit",
        HEADLINE,
    )
    assert told["pass"] == 18205
    assert [cause["kind"] for cause in told["causes"]] == ["order", "fit", "policy"]
    assert [row["machines"] for row in told["machines"]] == [["gpu-03"], ["gpu-01", "gpu-02"]]
    assert told["when"]["text"].endswith(", when llm-7 reaches its time limit.")
    stop = next(change for change in told["changes"] if change["code"] == "end_run")
    assert (stop["kind"], stop["placement"]["verdict"]) == ("run", "ib_rack")


def test_a_worker_says_first_what_the_set_lacks(waits, vic):
    run = checked(vic.get(f"{API}/runs/ddp-resnet50/explanation"))
    worker = checked(vic.get(f"{API}/workers/ddp-resnet50-1/explanation"))

    assert worker["headline"] == f"No fabric has room: {HEADLINE}"
    same = {name: value for name, value in worker.items() if name not in ("headline", "worker", "history")}
    assert same == {name: value for name, value in run.items() if name not in ("headline", "history")}


def test_a_run_that_is_placed(house, vic):
    for number in (1, 2):
        factories.machine_make(house, f"gpu-0{number}")
    waiting(house)
    cluster_pass(house.cluster.id)
    told = checked(vic.get(f"{API}/runs/ddp-resnet50/explanation"))

    assert (told["kind"], told["headline"]) == (
        "placed",
        "Placed on gpu-01 and gpu-02, one rack on one InfiniBand fabric.",
    )
    assert told["placement"]["groups"][0]["machines"] == ["gpu-01", "gpu-02"]


@pytest.mark.parametrize("escaped", [True, False])
def test_at_a_time_that_is_past(waits, vic, escaped):
    DecisionRecord.objects.update(at=timezone.now() - timedelta(hours=2))
    at = (timezone.now() - timedelta(hours=1)).isoformat(timespec="seconds")
    asked = quote(at) if escaped else at
    told = checked(vic.get(f"{API}/runs/ddp-resnet50/explanation?at={asked}"))

    assert told["at"] == DecisionRecord.objects.get().at.isoformat().replace("+00:00", "Z")
    assert (told["when"], told["changes"]) == (None, [])
    assert (
        checked(vic.get(f"{API}/workers/ddp-resnet50-0/explanation?at={asked}"))["worker"] == "ddp-resnet50-0"
    )


def test_before_all_that_is_kept(waits, vic):
    answer = vic.get(f"{API}/runs/ddp-resnet50/explanation?at=2026-01-01T00:00:00Z")

    assert answer.status_code == 404
    assert answer.json()["detail"].startswith(
        "No judgement of ddp-resnet50 is kept from before 00:00 UTC on 1 Jan"
    )


@pytest.mark.parametrize(
    "at", ["yesterday", "", "2026-03-01", "2026-03-01T14:00:00", "14:00", "0000-00-00T00:00:00Z"]
)
def test_what_is_no_time_is_refused(waits, vic, at):
    answer = vic.get(f"{API}/runs/ddp-resnet50/explanation", {"at": at})

    assert answer.status_code == 400
    assert answer.json()["errors"] == [
        {
            "path": "at",
            "code": "bad_parameter",
            "message": "`at` must be a time with its zone: 2026-03-01T14:03:07Z.",
        }
    ]


def test_strangers_learn_nothing(house, waits, api):
    assert api(house.cyd).get(f"{API}/runs/ddp-resnet50/explanation").status_code == 404
