"""A run's metrics over the API: by name and worker, filtered, thinned, and with null for what is no number."""

import math
from typing import Any

import pytest

from runs.metric_series import thinned
from runs.models import Assignment, MetricSample
from tests.console.test_api_schema import answer_schema
from tests.support.families import independent
from tests.support.gangs import CRASH, back_off_over, replaced

pytestmark = pytest.mark.django_db
API = "/api/v1/o/acme/w/vision"
PATH = f"{API}/runs/ddp-resnet50/metrics"
NAN, INF = math.nan, math.inf


@pytest.fixture
def editor(house, api):
    return api(house.bea)


def tell(member: Assignment, name: str, values: dict[int, float]) -> None:
    MetricSample.objects.bulk_create(
        MetricSample(assignment=member, name=name, step=step, value=value) for step, value in values.items()
    )


@pytest.fixture
def trained(running):
    """The loss of both workers, the accuracy of the first one."""
    first, second = running.members
    tell(first, "loss", {step: 100.0 - step for step in range(0, 100, 10)})
    tell(first, "accuracy", {0: NAN, 50: -INF})
    tell(second, "loss", {10: 2.5, 0: NAN, 20: INF, 30: -1.5})
    return running


def items(editor, query: str = "") -> Any:
    answer = editor.get(f"{PATH}?{query}")
    assert answer.status_code == 200, answer.content
    path = "/api/v1/o/{organization}/w/{workspace}/runs/{run}/metrics"
    assert list(answer_schema("GET", path, 200).iter_errors(answer.json())) == []
    assert answer.json()["next"] is None
    return answer.json()["items"]


def steps(editor, query: str) -> list[tuple[str, str, int, list[int]]]:
    return [
        (each["name"], each["worker"][-1], each["count"], [sample["step"] for sample in each["samples"]])
        for each in items(editor, query)
    ]


def test_every_sample_by_name_worker_and_step(trained, editor):
    accuracy, first, second = items(editor)

    assert accuracy == {
        "name": "accuracy",
        "worker": "ddp-resnet50-0",
        "attempt": 1,
        "count": 2,
        "low": None,
        "high": None,
        "samples": [{"step": 0, "value": None}, {"step": 50, "value": None}],
    }
    assert (first["name"], first["worker"], first["count"]) == ("loss", "ddp-resnet50-0", 10)
    assert first["samples"][3] == {"step": 30, "value": 70.0}
    assert second == {
        "name": "loss",
        "worker": "ddp-resnet50-1",
        "attempt": 1,
        "count": 4,
        "low": -1.5,
        "high": 2.5,
        "samples": [
            {"step": 0, "value": None},
            {"step": 10, "value": 2.5},
            {"step": 20, "value": None},
            {"step": 30, "value": -1.5},
        ],
    }


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("name=accuracy", [("accuracy", "0", 2, [0, 50])]),
        ("worker=ddp-resnet50-1", [("loss", "1", 4, [0, 10, 20, 30])]),
        (
            "name=loss&name=accuracy&from_step=30&worker=ddp-resnet50-1&worker=ddp-resnet50-0&points=3",
            [("accuracy", "0", 1, [50]), ("loss", "0", 7, [30, 60, 90]), ("loss", "1", 1, [30])],
        ),
        ("name=loss&from_step=0&points=2", [("loss", "0", 10, [0, 90]), ("loss", "1", 4, [0, 30])]),
        ("name=loss&points=1", [("loss", "0", 10, [90]), ("loss", "1", 4, [30])]),
        ("name=nothing", []),
        ("from_step=999999999999999", []),
    ],
)
def test_a_part_of_them(trained, editor, query, found):
    assert steps(editor, query) == found


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        ("from_step=-1", "`from_step` must be a number from 0 to 999999999999999."),
        ("points=0", "`points` must be a number from 1 to 50000."),
        ("names=loss", "`names` is not a parameter here; did you mean `name`?"),
        ("name=%00", "`name` has a NUL character."),
    ],
)
def test_parameters_that_are_none(running, editor, query, detail):
    answer = editor.get(f"{PATH}?{query}")

    assert (answer.status_code, answer.json()["detail"]) == (400, detail)


def test_a_new_attempt_begins_anew(trained, editor):
    trained.all_end(CRASH)
    trained.advance()
    back_off_over(trained)
    tell(replaced(trained).members[1], "loss", {0: 7.0})

    assert [(each["worker"], each["attempt"], each["samples"]) for each in items(editor)] == [
        ("ddp-resnet50-1", 2, [{"step": 0, "value": 7.0}])
    ]


def test_each_worker_that_starts_on_its_own_counts(house, machines, editor):
    family = independent(house, workers=3).start(0, 1)
    for rank, member in enumerate(Assignment.objects.order_by("worker__rank")):
        tell(member, "loss", {0: float(rank)})

    answer = editor.get(f"{API}/runs/{family.run.name}/metrics").json()["items"]
    assert [(each["worker"], each["samples"]) for each in answer] == [
        ("sweep-0", [{"step": 0, "value": 0.0}]),
        ("sweep-1", [{"step": 0, "value": 1.0}]),
    ]


@pytest.mark.parametrize("most", [1, 2, 3, 7, 400, 999, 1000, 1001])
def test_thinning_keeps_the_ends_and_never_more_than_asked(most):
    points = [(step, 0.0) for step in range(1000)]
    found = thinned(points, most)

    assert (len(found) <= most, found[-1]) == (True, points[-1])
    assert most == 1 or found[0] == points[0]
    assert len(found) > most / 2
    assert found == sorted(set(found))
