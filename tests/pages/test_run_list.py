"""The Runs page: rows, filters, pages of 50, and what the live fragment brings."""

import pytest

from console.pages import run_list
from tests import factories as make
from wire.spec import validate_document

RUNS = "/o/acme/w/vision/jobs"


def rows(client, query=""):
    return client.get(f"{RUNS}{query}").context["page"].rows


def names(client, query=""):
    return [row.run.name for row in rows(client, query)]


@pytest.fixture
def three(house):
    """llm-7 runs, eval-3 (ana's) failed, ddp-resnet50 waits."""
    one, two, three = (make.machine_make(house, f"gpu-0{number}") for number in (1, 2, 3))
    make.run_start(make.run_place(house, make.run_pending(house, "llm-7"), [one, two]))
    single = make.document_make("eval-3", gpus=8, machines=1)
    single["metadata"]["labels"] = {"project": "speech"}
    failed = make.run_pending(house, "eval-3", by=house.ana, document=single)
    make.run_fail(make.run_place(house, failed, [three]))
    make.run_pending(house)
    return house


def test_rows_say_state_reason_gpus_network_and_owner(three, bea):
    [ddp, failed, llm] = rows(bea)
    assert (ddp.run.name, ddp.run.state, ddp.gpus, ddp.network) == ("ddp-resnet50", "Pending", 16, "")
    assert ddp.reason == "Queued; the next pass is due within seconds"
    assert (failed.run.name, failed.reason) == ("eval-3", "eval-3-0 on gpu-03: code 1")
    assert (llm.reason, llm.gpus, llm.network) == ("2 of 2 workers running", 16, "one InfiniBand fabric")
    page = bea.get(RUNS).content.decode()
    assert page.count('<span class="chip tone-') == 3
    assert "<bdi>ana</bdi>" in page


def test_a_workspaces_own_address_leads_to_its_runs(house, bea):
    assert bea.get("/o/acme/w/vision")["Location"] == RUNS


def test_each_owner_is_offered_once(three, bea):
    assert bea.get(RUNS).context["owners"] == ["ana", "bea"]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("?state=Failed", ["eval-3"]),
        ("?state=Nonsense", ["ddp-resnet50", "eval-3", "llm-7"]),
        ("?owner=ana", ["eval-3"]),
        ("?label=project%3Dspeech", ["eval-3"]),
        ("?label=project", ["ddp-resnet50", "eval-3", "llm-7"]),
        ("?label=nothing", []),
        ("?text=LLM", ["llm-7"]),
        ("?text=e&state=Pending", ["ddp-resnet50"]),
    ],
)
def test_filters_live_in_the_address(three, bea, query, found):
    assert names(bea, query) == found


def test_the_queue_is_counted(three, bea):
    assert "Queue 1</a>" in bea.get(RUNS).content.decode()


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("", "No runs yet."),
        ("?state=Pending", "No run matches these filters."),
        ("?text=x", "No run matches these filters."),
    ],
)
def test_empty_states_say_what_to_do_next(house, bea, query, words):
    assert words in bea.get(f"{RUNS}{query}").content.decode()


@pytest.mark.parametrize("number", ["9" * 5000, "-1", "1e3", "²"])
def test_pages_that_are_none_are_the_first(three, bea, number):
    assert names(bea, f"?before={number}") == names(bea, f"?after={number}") == names(bea, "")


def test_gpus_of_groups_are_added_up(house, bea):
    document = make.document_make()
    template = document["spec"].pop("task_template")
    cpu = {**template, "requested_resources": {"cpu_cores": 4}}
    document["spec"]["worker_groups"] = [
        {"name": "a", "task_template": template},
        {"name": "b", "task_template": template},
        {"name": "c", "task_template": cpu},
    ]
    run = make.run_pending(house)
    run.document = validate_document(document).filled()
    run.save()
    assert [row.gpus for row in rows(bea)] == [32]


def test_pages_stay_where_they_are(house, bea, monkeypatch):
    monkeypatch.setattr(run_list, "PAGE_SIZE", 2)
    for number in range(5):
        make.run_pending(house, f"run-{number}")
    first = bea.get(RUNS).context["page"]
    assert ([row.run.name for row in first.rows], first.newer) == (["run-4", "run-3"], None)
    second = bea.get(f"{RUNS}?before={first.older}").context["page"]
    assert [row.run.name for row in second.rows] == ["run-2", "run-1"]
    make.run_pending(house, "run-5")
    last = bea.get(f"{RUNS}?before={second.older}").context["page"]
    assert ([row.run.name for row in last.rows], last.older) == (["run-0"], None)
    back = bea.get(f"{RUNS}?after={last.newer}").context["page"]
    assert [row.run.name for row in back.rows] == ["run-2", "run-1"]
    newest = bea.get(f"{RUNS}?after={first.rows[0].run.id}").context["page"]
    assert ([row.run.name for row in newest.rows], newest.newer) == (["run-5"], None)


def test_the_live_fragment_holds_the_rows_shown_and_counts_the_new(three, bea):
    shown = [row.run.id for row in rows(bea)]
    make.run_pending(three, "newcomer")
    answer = bea.get(
        RUNS, {"shown": f"{shown[2]},x,999999", "newest": shown[0]}, headers={"HX-Request": "true"}
    )
    text = answer.content.decode()
    assert f'id="state-{shown[2]}" hx-swap-oob="true"' in text
    assert f"state-{shown[1]}" not in text
    assert "1 new run. Show" in text
    assert "<html" not in text
    assert "HX-Request" in answer["Vary"]


def test_names_and_labels_are_text(house, bea):
    page = bea.get(f"{RUNS}?text=%3Cscript%3Ealert(1)%3C/script%3E").content.decode()
    assert "<script>alert" not in page


def test_queries_do_not_grow_with_the_runs(three, bea, django_assert_num_queries):
    bea.get(RUNS)
    with django_assert_num_queries(10):
        bea.get(RUNS)
    for number in range(10):
        make.run_pending(three, f"more-{number}")
    with django_assert_num_queries(10):
        bea.get(RUNS)
