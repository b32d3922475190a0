"""A run's page in every state, its live fragment, and stop, restart and delete with their questions."""

import html

import pytest

from machines.models import Machine
from runs.models import Assignment, MetricSample, Run
from tests import factories as make

JOBS = "/o/acme/w/vision/jobs"
DDP = f"{JOBS}/main/ddp-resnet50"
LLM = f"{JOBS}/main/llm-7"


def text(answer):
    return html.unescape(answer.content.decode())


def test_a_waiting_run_answers_first_why(busy, bea):
    page = text(bea.get(DDP))
    headline = (
        "2 machines with 8 free H100s on one fabric are needed; fabric ib-a has 1 (gpu-01), ib-b has 0."
    )
    assert f'data-say="ddp-resnet50 is Pending: {headline}"' in page
    assert page.index(headline) < page.index("exactly 2 machines") < page.index("Why it is waiting")
    for words in (
        "Ready for this run",
        "Too few free GPUs",
        "GPU faulty",
        "No RDMA port",
        "Another model",
        "0 of 8 GPUs free, 8 needed",
        "no machine yet",
        "As of pass 18,205",
    ):
        assert words in page
    assert ">Restart</a>" not in page
    assert f'href="{DDP}/edit">Edit</a>' in page
    assert '/jobs/new?clone=ddp-resnet50">Clone</a>' in page
    assert "<title>Pending · ddp-resnet50 · Astraeus</title>" in page


def test_a_running_run_names_network_machines_and_gpus(busy, bea):
    answer = bea.get(LLM)
    page = text(answer)
    assert "2 of 2 workers running" in page
    assert "one InfiniBand fabric" in page
    assert [(row.machine, row.gpus) for row in answer.context["view"].workers] == [
        ("gpu-02", "GPUs 0–7"),
        ("gpu-03", "GPUs 0–7"),
    ]
    assert [step.name for step in answer.context["view"].steps] == ["queued", "placed", "ready", "running"]
    assert "Why it is waiting" not in page
    assert "all_reduce 1 GiB over 16 GPUs: 5.6 ms, bus bandwidth 360 GB/s" in page


def test_a_failed_run_says_who_failed_and_how(busy, bea):
    page = text(bea.get(f"{JOBS}/main/eval-3"))
    assert "eval-3-0 on gpu-01: code 137: killed" in page
    assert ">Stop</a>" not in page
    assert ">Restart</a>" in page
    assert ">Edit</a>" not in page, "only runs that wait are edited"
    assert '/jobs/new?clone=eval-3">Clone</a>' in page


def test_a_failed_run_shows_the_log_of_the_worker_that_failed_first(house, bea):
    machines = [make.machine_make(house, f"gpu-0{number}") for number in (1, 2)]
    attempt = make.run_place(house, make.run_pending(house), machines)
    make.run_start(attempt)
    assert "Log, merged" in text(bea.get(DDP))
    make.log_write(attempt.assignments.get(worker__rank=1), b"here is why\n")
    make.run_fail(attempt)  # of which rank 1 is to blame
    page = text(bea.get(DDP))
    assert "Log of ddp-resnet50-1" in page
    assert "here is why" in page


def test_the_history_tells_it_in_order(busy, bea):
    events = bea.get(LLM).context["view"].events
    assert [event.state for event in events] == ["Pending", "Starting", "Running"]


def test_logs_and_names_are_text(busy, bea):
    page = bea.get(LLM).content.decode()
    assert "&lt;b&gt;not bold&lt;/b&gt;" in page
    assert "\u202e" not in page


@pytest.mark.parametrize(
    "address", [f"{JOBS}/other/ddp-resnet50", f"{JOBS}/main/nothing", f"{JOBS}/main/a%00b"]
)
def test_what_is_not_there_is_not_found(busy, bea, address):
    answer = bea.get(address)
    assert answer.status_code == 404
    assert "Nothing here that you may see." in text(answer)


def test_the_live_fragment_holds_leaves_only(busy, bea):
    answer = bea.get(LLM, headers={"HX-Request": "true"})
    page = text(answer)
    for leaf in ("run-state", "run-timeline", "run-network", "run-history", "w-state-0", "w-reason-1"):
        assert f'id="{leaf}"' in page
    assert page.count("hx-swap-oob") == 14
    assert "<form" not in page
    assert "<html" not in page


def test_metrics_are_drawn_and_told_as_numbers_and_can_be_had_alone(busy, bea):
    assignment = Assignment.objects.filter(attempt__run__name="llm-7")[0]
    for step, value in ((0, 4.5), (50, 2.25)):
        MetricSample.objects.create(assignment=assignment, name="loss", step=step, value=value)
    whole, alone = bea.get(LLM).content.decode(), bea.get(f"{LLM}/metrics").content.decode()
    for answer in (whole, alone):
        assert 'aria-label="loss from 2.25 to 4.5 over steps 0 to 50"' in answer
        assert '<polyline points="80.0,12.0 632.0,176.0" />' in answer
        assert "Numbers of loss" in answer
        assert f'hx-get="{LLM}/metrics"' in answer
    assert "<h1>" in whole
    assert "<h1>" not in alone


def test_queries(busy, bea, django_assert_num_queries):
    bea.get(LLM)
    with django_assert_num_queries(23):
        bea.get(LLM)
    with django_assert_num_queries(15):
        bea.get(LLM, headers={"HX-Request": "true"})
    with django_assert_num_queries(28):  # with the explanation, which is worked out once for each pass
        bea.get(DDP)
    with django_assert_num_queries(16):
        bea.get(DDP)


def test_stop_asks_and_names_what_is_lost(busy, bea):
    page = text(bea.get(f"{LLM}/stop"))
    assert "Stop llm-7?" in page
    assert "Both workers get SIGTERM and 30 s, then SIGKILL. 16 GPUs become free." in page
    assert bea.post(f"{LLM}/stop")["Location"] == LLM
    run = Run.objects.get(name="llm-7")
    assert (run.wanted, run.stopped_by) == ("stop", "bea")
    page = text(bea.get(LLM))
    assert "llm-7 is being stopped." in page
    assert ">Stop</a>" not in page


def test_stopping_what_waits_takes_it_from_the_queue(busy, bea):
    assert "It leaves the queue; nothing runs yet." in text(bea.get(f"{DDP}/stop"))


def test_restart_says_which_attempt_comes(busy, bea):
    page = text(bea.get(f"{JOBS}/main/eval-3/restart"))
    assert "Attempt 2 goes into the queue; the log of attempt 1 is kept." in page
    bea.post(f"{JOBS}/main/eval-3/restart")
    assert Run.objects.get(name="eval-3").state == "Pending"
    page = text(bea.get(f"{JOBS}/main/eval-3"))
    assert "Restarted by bea" in page


def test_what_can_not_be_restarted_says_why(busy, bea):
    answer = bea.post(f"{DDP}/restart")
    assert answer.status_code == 409
    assert "ddp-resnet50 is waiting in the queue already." in text(answer)


def test_delete_wants_the_name(busy, bea):
    page = text(bea.get(f"{DDP}/delete"))
    assert "It is stopped first. Its log, metrics and history are gone for good." in page
    wrong = bea.post(f"{DDP}/delete", {"name": "ddp"})
    assert wrong.status_code == 422
    assert "That is not the name. Type ddp-resnet50." in text(wrong)
    assert 'value="ddp"' in text(wrong)
    assert Run.objects.get(name="ddp-resnet50").wanted == "run"


def test_a_run_that_still_runs_is_deleted_once_it_has_ended(busy, bea):
    assert bea.post(f"{LLM}/delete", {"name": " llm-7 "})["Location"] == JOBS
    assert Run.objects.get(name="llm-7").wanted == "delete"
    assert "llm-7 stops first; then it is deleted." in text(bea.get(JOBS))
    assert "It is deleted once it has ended." in text(bea.get(LLM))


def test_a_run_that_waits_is_gone_at_once(busy, bea):
    bea.post(f"{DDP}/delete", {"name": "ddp-resnet50"})
    assert not Run.objects.filter(name="ddp-resnet50").exists()
    assert "ddp-resnet50 deleted." in text(bea.get(JOBS))


def test_a_run_that_has_ended_is_gone_at_once(busy, bea):
    bea.post(f"{JOBS}/main/eval-3/delete", {"name": "eval-3"})
    assert not Run.objects.filter(name="eval-3").exists()
    assert "eval-3 deleted." in text(bea.get(JOBS))
    assert Machine.objects.filter(name="gpu-01").exists()


def test_a_restarted_run_tells_its_story_from_the_start(house, bea):
    machine = make.machine_make(house, "gpu-01")
    run = make.run_pending(house, document=make.document_make(gpus=8, machines=1))
    make.run_fail(make.run_place(house, run, [machine]))
    make.run_start(make.run_place(house, run, [machine]))
    page = text(bea.get(DDP))
    assert "attempt 2" in page
    view = bea.get(DDP).context["view"]
    assert view.attempt.number == 2
    assert [event.attempt for event in view.events] == [0, 1, 1, 2, 2]
