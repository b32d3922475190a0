"""Stopping the runs that are ticked in the list: the question's numbers, who may, what is left alone and named."""

import html

import pytest
from django.test import Client

from runs import services
from runs.models import Run
from tenancy.models import AuditEvent
from tests import factories as make
from tests.pages.conftest import signed_in
from tests.support.families import independent

RUNS = "/o/acme/w/vision/jobs"
STOP = f"{RUNS}/stop"


def values(*runs):
    return [f"{run.id}:{run.name}" for run in runs]


def asked(client, *runs):
    answer = client.get(STOP, {"run": values(*runs)})
    assert answer.status_code == 200
    return answer.context


def told(client, *picked, **more):
    answer = client.post(STOP, {"run": list(picked), **more}, follow=True)
    assert answer.status_code == 200
    return [str(message) for message in answer.context["messages"]]


def wanted():
    return dict(Run.objects.filter(parent=None).values_list("name", "wanted"))


@pytest.fixture
def runs(house):
    """llm-7 runs on 16 GPUs, tune-9 on 4, eval-3 has failed, ddp-1 and ddp-2 wait."""
    one, two, three, four = (make.machine_make(house, f"gpu-0{number}") for number in range(1, 5))
    made = {"llm-7": make.run_start(make.run_place(house, make.run_pending(house, "llm-7"), [one, two]))}
    small = make.run_pending(house, "tune-9", document=make.document_make("tune-9", gpus=4, machines=1))
    made["tune-9"] = make.run_start(make.run_place(house, small, [three], gpus=4))
    single = make.document_make("eval-3", gpus=8, machines=1)
    failed = make.run_pending(house, "eval-3", document=single)
    made["eval-3"] = make.run_fail(make.run_place(house, failed, [four]))
    made |= {name: make.run_pending(house, name) for name in ("ddp-1", "ddp-2")}
    return made


def test_the_question_counts_what_is_true_now(runs, house, bea):
    picked = [runs[name] for name in ("ddp-1", "llm-7", "ddp-2", "tune-9")]
    question = asked(bea, *picked)
    assert question["question"] == "Stop 4 runs?"
    assert question["text"] == "2 are running and free 20 GPUs; 2 are waiting."
    assert question["left"] == ""
    starting = make.run_place(
        house, runs["ddp-1"], [house.cluster.machines.get(name="gpu-04")] * 2, gpus=3
    ).run
    question = asked(bea, *picked)
    assert question["text"] == (
        "2 are running and free 20 GPUs; 1 is starting and frees 6 GPUs; 1 is waiting."
    )
    assert [kind for kind, _ in question["kinds"]] == ["running", "starting", "waiting"]
    assert wanted()[starting.name] == "run", "to ask changes nothing"


def test_one_run_is_called_by_its_name(runs, bea):
    question = asked(bea, runs["ddp-1"])
    assert (question["question"], question["text"], question["yes"]) == (
        "Stop ddp-1?",
        "1 is waiting.",
        "Stop 1 run",
    )


def test_what_the_workers_of_an_independent_run_hold_is_its_own(house, bea):
    for name in ("gpu-01", "gpu-02"):
        make.machine_make(house, name)
    family = independent(house, workers=3).start(0, 1)
    assert asked(bea, family.run)["text"] == "1 is running and frees 16 GPUs."


def test_runs_that_are_ended_stopping_or_gone_are_named_and_fail_no_other(runs, house, bea):
    services.run_stop(run=runs["tune-9"], actor=make.actor_of(house.bea))
    gone = f"{10**9}:old-1"
    picked = values(runs["eval-3"], runs["tune-9"], runs["ddp-1"])
    words = (
        "Not stopped: eval-3 (ended already: Failed); tune-9 (being stopped already); old-1 (no longer here)."
    )
    question = bea.get(STOP, {"run": [*picked, gone]}).context
    assert (question["question"], question["left"]) == ("Stop ddp-1?", words)
    assert told(bea, *picked, gone) == ["ddp-1 is being stopped.", words]
    assert wanted() == {"llm-7": "run", "tune-9": "stop", "eval-3": "run", "ddp-1": "stop", "ddp-2": "run"}


def test_a_run_that_ends_or_vanishes_while_others_are_stopped_is_named(runs, bea, monkeypatch):
    original = services.run_stop

    def after_the_look(*, run, actor):
        if run.name == "ddp-1":
            Run.objects.filter(id=run.id).update(state="Stopped")
        if run.name == "ddp-2":
            Run.objects.filter(id=run.id).delete()
        return original(run=run, actor=actor)

    monkeypatch.setattr("runs.stopping.run_stop", after_the_look)
    assert told(bea, *values(runs["ddp-1"], runs["ddp-2"], runs["llm-7"])) == [
        "llm-7 is being stopped.",
        "Not stopped: ddp-1 (ended a moment ago); ddp-2 (no longer here).",
    ]
    assert wanted()["llm-7"] == "stop"


def test_a_second_press_stops_nothing_twice(runs, bea):
    picked = values(runs["llm-7"], runs["ddp-1"])
    assert told(bea, *picked, *picked) == ["llm-7 and ddp-1 are being stopped."]
    assert told(bea, *picked) == ["Not stopped: llm-7 and ddp-1 (being stopped already)."]
    assert AuditEvent.objects.filter(action="run.stop").count() == 2


def test_many_runs_are_told_in_one_sentence_and_the_list_is_as_it_was(runs, bea):
    picked = values(*(runs[name] for name in ("llm-7", "tune-9", "ddp-1", "ddp-2")))
    answer = bea.post(STOP, {"run": picked, "list": "owner=bea&before=99"})
    assert answer["Location"] == f"{RUNS}?owner=bea&before=99"
    page = html.unescape(bea.get(answer["Location"]).content.decode())
    assert "llm-7, tune-9 and 2 more are being stopped." in page


def test_where_nothing_can_be_stopped_nothing_is_asked(runs, bea):
    answer = bea.get(STOP, {"run": values(runs["eval-3"])})
    assert answer.context["question"] == "None of these runs can be stopped."
    assert 'type="submit" class="button danger"' not in answer.content.decode()
    assert bea.get(STOP).context["question"] == "No run is ticked."
    assert (
        bea.get(STOP, {"run": ["x", "12", ":a", f"{'9' * 400}:b"]}).context["question"] == "No run is ticked."
    )
    assert told(bea) == []


def test_too_many_are_refused_before_any_is_stopped(runs, bea, monkeypatch):
    monkeypatch.setattr("console.pages.run_stop_many.MOST", 1)
    answer = bea.post(STOP, {"run": values(runs["ddp-1"], runs["ddp-2"])})
    assert answer.status_code == 422
    assert "2 runs are ticked; at most 1 can be stopped at once. Nothing was stopped." in (
        answer.content.decode()
    )
    assert set(wanted().values()) == {"run"}


def test_only_who_may_write_runs_may_ask_or_stop(runs, bea, vic, cyd):
    picked = {"run": values(runs["ddp-1"])}
    for client, status in ((vic, 403), (cyd, 404)):
        assert client.get(STOP, picked).status_code == status
        assert client.post(STOP, picked).status_code == status
    assert Client().get(STOP, picked).status_code == 302
    assert bea.put(STOP).status_code == 405
    bea.get(STOP, picked)
    assert set(wanted().values()) == {"run"}
    assert 'name="run"' not in vic.get(RUNS).content.decode()


def test_a_post_of_another_site_stops_nothing(runs, house):
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = signed_in(house.bea).cookies
    assert strict.post(STOP, {"run": values(runs["ddp-1"])}).status_code == 403
    assert set(wanted().values()) == {"run"}


def test_runs_of_another_workspace_are_not_here(runs, house, bea, cyd):
    elsewhere = type(house.workspace).objects.get(slug="secret")
    Run.objects.filter(id=runs["llm-7"].id).update(workspace=elsewhere)
    assert told(bea, f"{runs['llm-7'].id}:guessed") == ["Not stopped: guessed (no longer here)."]
    assert wanted()["llm-7"] == "run"


def test_the_list_ticks_what_can_be_stopped(runs, bea):
    rows = {row.run.name: row.run.stoppable for row in bea.get(RUNS).context["page"].rows}
    assert rows == {"llm-7": True, "tune-9": True, "eval-3": False, "ddp-1": True, "ddp-2": True}


def test_queries_do_not_grow_with_what_is_asked(runs, bea, django_assert_num_queries):
    bea.get(STOP)
    for picked in (["llm-7"], ["llm-7", "ddp-1", "ddp-2", "eval-3"]):
        with django_assert_num_queries(8):
            asked(bea, *(runs[name] for name in picked))
