"""`…/logs` as a stream of its own: what is not there, and what was never written."""

import pytest

from tenancy.services import token_create
from tests import factories
from tests.support.console import in_console

pytestmark = pytest.mark.django_db(transaction=True)
WORKERS = "/api/v1/o/acme/w/vision/workers"


@pytest.fixture
def ask(house):
    """The answer to a request of the workspace's editor."""
    factories.run_pending(house)
    made = {"user": house.bea, "organization": house.organization, "workspace": house.workspace}
    secret = token_create(**made, role="editor", name="ci").value

    def ask(path: str, method: str = "GET"):
        headers = {"Authorization": f"Bearer {secret}"}
        return in_console(lambda client: client.request(method, f"{WORKERS}/{path}", headers=headers))

    return ask


def test_a_worker_that_never_started_has_an_empty_log(ask):
    answer = ask("ddp-resnet50-0/logs")

    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["x-log-offset"] == "0"
    assert "x-log-attempt" not in answer.headers


@pytest.mark.parametrize(
    ("path", "detail"),
    [
        ("ddp-resnet50/logs", "There is no worker `ddp-resnet50` in vision."),
        ("DDP-resnet50-0/logs", "There is no worker `DDP-resnet50-0` in vision."),
        ("ddp-resnet50-9/logs", "There is no worker `ddp-resnet50-9` in vision."),
    ],
)
def test_a_worker_s_name_that_is_none(ask, path, detail):
    answer = ask(path)

    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
    assert answer.json()["detail"] == detail


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        ("tails=1", "`tails` is not a parameter here; it takes tail, since, follow, attempt, offset."),
        ("tail=-1", "`tail` must be a whole number from 0 to 1,000,000,000,000."),
        ("attempt=0", "`attempt` must be a whole number from 1 to 1,000,000,000,000."),
        ("follow=yes", "`follow` must be true or false."),
        (
            "since=yesterday",
            "`since` must be a duration such as 10m, or a time with its zone such as 2026-01-31T12:00:00Z.",
        ),
    ],
)
def test_parameters_that_are_none(ask, query, detail):
    answer = ask(f"ddp-resnet50-0/logs?{query}")
    assert (answer.status_code, answer.json()["detail"]) == (400, detail)


def test_logs_are_only_read(ask):
    answer = ask("ddp-resnet50-0/logs", "DELETE")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET")
