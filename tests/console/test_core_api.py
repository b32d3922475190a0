"""The API's answers: documents, errors, pages, filters."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rest_framework.test import APIClient

from runs.models import Run
from runs.scheduling.passes import cluster_place
from tenancy.models import ApiToken, AuditEvent
from tenancy.services import token_create
from tests import factories
from tests.support.console import application, in_console
from tests.support.gangs import SUCCESS

pytestmark = pytest.mark.django_db
API = "/api/v1/o/acme/w/vision"
REFERENCE = Path(__file__).parents[2] / "worker_image" / "run.json"
PROBLEM = "application/problem+json"


@pytest.fixture
def editor(house, api):
    return api(house.bea)


def submit(client, document, **headers):
    data = document if isinstance(document, bytes) else json.dumps(document)
    return client.post(f"{API}/runs", data=data, content_type="application/json", **headers)


# --- Submitting --------------------------------------------------------------------------------------


def test_the_reference_s_curl_line(house, machines):
    """POST with a token, `jq -r .metadata.name`."""
    secret = token_create(
        user=house.bea, organization=house.organization, workspace=house.workspace, role="editor", name="ci"
    )
    client = APIClient(enforce_csrf_checks=True)
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {secret.value}")
    response = submit(client, REFERENCE.read_bytes())

    assert response.status_code == 201
    answer = response.json()
    assert answer["metadata"] == {"name": "ddp-resnet50", "labels": {"project": "fabric-check"}}
    assert answer["spec"]["task_template"]["time_limit_seconds"] == 3600
    status = answer["status"]
    assert status["url"] == "http://127.0.0.1:8000/o/acme/w/vision/jobs/main/ddp-resnet50"
    assert (status["state"], status["reason"], status["cluster"], status["attempt"]) == (
        "Pending",
        "Queued; the next pass is due within seconds",
        "main",
        0,
    )
    assert [(worker["name"], worker["state"], worker["machine"]) for worker in status["workers"]] == [
        ("ddp-resnet50-0", "Pending", None),
        ("ddp-resnet50-1", "Pending", None),
    ]
    assert ApiToken.objects.get().last_used_at is not None
    audit = AuditEvent.objects.get()
    assert (audit.actor, audit.address) == ("bea (token ci)", "127.0.0.1")


def test_all_errors_in_one_answer(editor):
    document = factories.document_make("Bad Name", machines=3)
    document["spec"]["colour"] = "red"
    response = submit(editor, document)

    assert response.status_code == 422
    assert response.headers["Content-Type"] == PROBLEM
    answer = response.json()
    assert (answer["title"], answer["status"], answer["code"]) == (
        "The document has errors",
        422,
        "invalid_document",
    )
    assert {error["path"] for error in answer["errors"]} >= {"metadata.name", "spec.colour"}
    assert all(set(error) == {"path", "code", "message"} for error in answer["errors"])
    assert not Run.objects.exists()


def test_a_name_that_is_taken(editor):
    assert submit(editor, factories.document_make("a")).status_code == 201
    response = submit(editor, factories.document_make("a"))

    assert (response.status_code, response.json()["code"]) == (409, "name_taken")
    assert response.json()["errors"][0]["path"] == "metadata.name"


def test_the_same_key_submits_once(editor):
    document = factories.document_make("a")
    first = submit(editor, document, HTTP_IDEMPOTENCY_KEY="k1")
    again = submit(editor, document, HTTP_IDEMPOTENCY_KEY="k1")

    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["metadata"] == again.json()["metadata"]
    assert submit(editor, factories.document_make("b"), HTTP_IDEMPOTENCY_KEY="k1").status_code == 409
    assert submit(editor, factories.document_make("b"), HTTP_IDEMPOTENCY_KEY="k" * 201).status_code == 422


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]
)
def test_another_content_type_is_refused(editor, kind):
    response = editor.generic("POST", f"{API}/runs", data=b"{}", content_type=kind)

    assert (response.status_code, response.headers["Content-Type"]) == (415, PROBLEM)
    assert response.json()["title"] == "Unsupported Media Type"
    assert "application/json" in response.json()["detail"]


def test_a_document_over_2_mib_is_refused(editor):
    response = submit(editor, b" " * (2 * 1024 * 1024 + 1))

    assert (response.status_code, response.headers["Content-Type"]) == (413, PROBLEM)
    assert response.json()["detail"] == "The document is over 2 MiB. Put large files on a drive."


@pytest.mark.django_db(transaction=True)
def test_so_is_one_that_comes_in_pieces_and_tells_no_length(house):
    secret = token_create(
        user=house.bea, organization=house.organization, workspace=house.workspace, role="editor", name="ci"
    )
    headers = {"Authorization": f"Bearer {secret.value}", "content-type": "application/json"}

    async def pieces():
        for _ in range(3):
            yield b" " * 1024 * 1024

    response = in_console(lambda client: client.post(f"{API}/runs", headers=headers, content=pieces()))
    assert response.status_code == 413
    assert response.headers["content-type"] == PROBLEM


# --- Reading -----------------------------------------------------------------------------------------


def test_a_run_that_runs(running, editor):
    status = editor.get(f"{API}/runs/ddp-resnet50").json()["status"]

    assert (status["state"], status["reason"], status["attempt"], status["restarts"]) == (
        "Running",
        "2 of 2 workers running",
        1,
        0,
    )
    assert status["network"] == {"code": "ib_rack", "text": "one rack on one InfiniBand fabric"}
    assert status["shape"] == [{"machines": 2, "gpus": 8}]
    workers = editor.get(f"{API}/runs/ddp-resnet50/workers").json()["items"]
    assert [(w["name"], w["rank"], w["state"], w["machine"], w["address"]) for w in workers] == [
        ("ddp-resnet50-0", 0, "Running", "gpu-01", "10.20.0.11"),
        ("ddp-resnet50-1", 1, "Running", "gpu-02", "10.20.0.12"),
    ]
    assert editor.get(f"{API}/workers/ddp-resnet50-1").json() == workers[1]
    events = editor.get(f"{API}/runs/ddp-resnet50/events").json()["items"]
    assert [event["state"] for event in events] == ["Pending", "Starting", "Starting", "Running"]


def test_why_a_run_waits(house, editor):
    """All of it: test_core_explanations.py."""
    factories.machine_make(house, "gpu-01")
    submit(editor, factories.document_make())
    cluster_place(house.cluster.id)
    answer = editor.get(f"{API}/runs/ddp-resnet50/explanation").json()

    reason = editor.get(f"{API}/runs/ddp-resnet50").json()["status"]["reason"]
    assert (answer["run"], answer["state"], answer["headline"]) == ("ddp-resnet50", "Pending", reason)
    worker = editor.get(f"{API}/workers/ddp-resnet50-1/explanation").json()
    assert worker["headline"] == editor.get(f"{API}/workers/ddp-resnet50-1").json()["reason"]
    assert worker["headline"] == f"No fabric has room: {reason}"


def test_runs_come_in_pages_newest_first(editor):
    for number in range(5):
        submit(editor, factories.document_make(f"run-{number}"))
    names: list[str] = []
    cursor: Any = ""
    pages = 0
    while cursor is not None:
        page = editor.get(f"{API}/runs", {"limit": 2, **({"cursor": cursor} if cursor else {})}).json()
        names += [run["metadata"]["name"] for run in page["items"]]
        cursor, pages = page["next"], pages + 1

    assert names == ["run-4", "run-3", "run-2", "run-1", "run-0"]
    assert pages == 3


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        ("limit=0", "`limit` must be a number from 1 to 500."),
        ("sort=name", "`sort` is not a parameter here; it takes state, label, q, cluster, limit, cursor."),
        ("lable=a=b", "`lable` is not a parameter here; did you mean `label`?"),
        ("state=Runing", "`Runing` is no value of `state`; did you mean `Running`?"),
        (
            "state=%00x",
            "`state` has a NUL character.",
        ),
    ],
)
def test_a_bad_parameter_is_the_request_s_error_not_the_document_s(editor, query, detail):
    response = editor.get(f"{API}/runs?{query}")
    body = response.json()

    assert (response.status_code, body["title"], body["detail"]) == (400, "The request has errors", detail)
    assert [error["path"] for error in body["errors"]] == [query.partition("=")[0]]


def test_a_page_takes_the_same_queries_however_many_runs(editor, django_assert_max_num_queries):
    for number in range(6):
        submit(editor, factories.document_make(f"run-{number}"))
    with django_assert_max_num_queries(12):
        assert len(editor.get(f"{API}/runs").json()["items"]) == 6


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("state=Pending", ["b-two", "a-one"]),
        ("state=Succeeded", ["c"]),
        ("state=Succeeded,Pending", ["c", "b-two", "a-one"]),
        ("label=project=vision", ["b-two"]),
        ("label=project=vision&label=x=1", []),
        ("label=nothing", []),
        ("q=ONE", ["a-one"]),
        ("q=%25", []),
        ("cluster=main", ["c", "b-two", "a-one"]),
        ("cluster=elsewhere", []),
    ],
)
def test_filters(editor, query, names):
    for name in ("a-one", "b-two", "c"):
        document = factories.document_make(name)
        if name == "b-two":
            document["metadata"]["labels"] = {"project": "vision"}
        submit(editor, document)
    Run.objects.filter(name="c").update(state="Succeeded")

    answer = editor.get(f"{API}/runs?{query}").json()
    assert [run["metadata"]["name"] for run in answer["items"]] == names


@pytest.mark.parametrize(
    "path",
    [
        "runs?colour=red",
        "runs?limit=0",
        "runs?limit=501",
        "runs?limit=x",
        "runs?cursor=-1",
        "runs?cursor=99999999999999999999",
        "runs?q=a%00b",
        "runs?state=%00",
        "runs?label=a%00=b",
        "runs/ddp-resnet50?x=1",
        "workers/ddp-resnet50-0?x=1",
    ],
)
def test_parameters_that_are_none(editor, path):
    submit(editor, factories.document_make())
    response = editor.get(f"{API}/{path}")

    assert (response.status_code, response.headers["Content-Type"]) == (400, PROBLEM)
    [error] = response.json()["errors"]
    assert error["path"] in {"colour", "limit", "cursor", "q", "state", "label", "x"}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", f"{API}/runs/nothing", 404),
        ("GET", f"{API}/runs/a%00b", 404),
        ("DELETE", f"{API}/runs/nothing", 404),
        ("POST", f"{API}/runs/nothing/stop", 404),
        ("GET", f"{API}/workers/nothing", 404),
        ("GET", "/api/v1/nothing", 404),
        ("POST", "/api/v1/nothing", 404),
        ("GET", "/api/v1/o/acme", 404),
        ("PATCH", f"{API}/runs", 405),
        ("POST", f"{API}/runs/ddp-resnet50", 405),
    ],
)
def test_what_is_not_there_is_said_in_json(editor, method, path, status):
    response = editor.generic(method, path)

    assert (response.status_code, response.headers["Content-Type"]) == (status, PROBLEM)
    assert response.json()["status"] == status
    assert response.json()["detail"]


def test_an_unknown_address_says_where_the_known_ones_are(editor):
    detail = editor.get("/api/v1/nothing").json()["detail"]
    assert detail == "The API has no /api/v1/nothing. /api/schema lists what it has."
    assert editor.get("/api/schema").status_code == 200


# --- Acting ------------------------------------------------------------------------------------------


def test_stop_and_restart(running, editor, django_capture_on_commit_callbacks, empty_redis):
    with django_capture_on_commit_callbacks(execute=True):
        response = editor.post(f"{API}/runs/ddp-resnet50/stop")
    assert response.status_code == 202
    assert empty_redis.llen("react") == 1
    assert running.advance()[0] == "Stopping"

    response = editor.post(f"{API}/runs/ddp-resnet50/restart")
    assert (response.status_code, response.json()["code"]) == (409, "stopping")


def test_delete_is_accepted_until_it_is_gone(running, editor):
    assert editor.delete(f"{API}/runs/ddp-resnet50").status_code == 202
    assert editor.delete(f"{API}/runs/ddp-resnet50").status_code == 202
    running.advance()
    running.all_end(SUCCESS)
    running.advance()

    assert editor.delete(f"{API}/runs/ddp-resnet50").status_code == 204
    assert editor.get(f"{API}/runs/ddp-resnet50").status_code == 404
    assert editor.delete(f"{API}/runs/ddp-resnet50").status_code == 404


def test_a_run_that_goes_while_its_delete_is_answered_is_deleted(house, editor, monkeypatch):
    """A Celery worker may be quicker than the view: that is success, not "not found"."""
    from runs import services

    submit(editor, factories.document_make())
    monkeypatch.setattr(services, "run_remove", lambda _id: bool(Run.objects.all().delete()) and False)

    assert editor.delete(f"{API}/runs/ddp-resnet50").status_code == 204


def test_the_schema_names_every_operation(client):
    response = client.get("/api/schema", headers={"accept": "application/vnd.oai.openapi+json"})

    assert response.status_code == 200
    assert json.load(io.BytesIO(response.content))["openapi"] == "3.1.0"


@pytest.mark.django_db(transaction=True)
def test_a_start_of_the_console_counts_as_having_heard_every_machine(house, empty_redis):
    """Over the application's own lifespan, as the server starts and ends it."""
    import asyncio
    import signal

    machine = factories.machine_make(house, "gpu-01", gpus=1)
    said = []
    incoming = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]

    async def receive():
        return incoming.pop(0)

    async def send(message):
        said.append(message["type"])

    async def lifespan(*channels):
        await application({"type": "lifespan"}, *channels)

    former = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        asyncio.run(lifespan(receive, send))
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
    assert said == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert empty_redis.get(f"astraeus:seen:{machine.id}") is not None
