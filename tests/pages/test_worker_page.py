"""A worker's page: why it is not running yet, its log, history and variables, over all attempts."""

import html
import json

from tests import factories as make

WORKERS = "/o/acme/w/vision/workers"


def text(answer):
    return html.unescape(answer.content.decode())


def test_a_waiting_worker_explains_the_whole_set(busy, bea):
    answer = bea.get(f"{WORKERS}/ddp-resnet50-1")
    page = text(answer)
    assert "No fabric has room: 2 machines with 8 free H100s on one fabric are needed" in page
    assert page.index("Why it is not running yet") < page.index(">Log<") < page.index(">History<")
    assert "The workers of this run start together, so the whole set is explained." in page
    causes = {cause.title: cause.count for cause in answer.context["explanation"].causes}
    assert causes == {
        "Ready for this run": 1,
        "Too few free GPUs": 2,
        "GPU faulty": 1,
        "No RDMA port": 1,
        "Another model": 1,
    }
    assert "rank 1" in page
    assert "no machine yet" in page
    assert "Nothing has happened yet; the next pass is due within seconds." in page


def test_a_running_worker_shows_its_log_first(busy, bea):
    page = text(bea.get(f"{WORKERS}/llm-7-0"))
    assert "Why it is not running yet" not in page
    assert page.index(">Log<") < page.index(">History<") < page.index(">Variables<")
    for words in ("gpu-02", "GPUs 0–7", "one InfiniBand fabric", "attempt 1", "llm-7-1 \u203a"):
        assert words in page
    assert 'data-lines="/o/acme/w/vision/jobs/main/llm-7/log/lines?worker=llm-7-0"' in page
    assert '<div class="line bad">Traceback (most recent call last):</div>' in page
    assert "Placed on gpu-02 with 8 GPUs: one InfiniBand fabric" in page


def test_variables_are_listed_and_secrets_hidden(busy, bea):
    from runs.models import Run

    run = Run.objects.get(name="llm-7")
    run.document["spec"]["task_template"]["secret_refs"] = [{"name": "hf-main", "env": "HF_TOKEN"}]
    run.save()
    page = text(bea.get(f"{WORKERS}/llm-7-0"))
    assert "WORLD_SIZE" in page
    assert "hidden, from secret hf-main" in page


def test_a_variable_s_value_turns_nothing_around(house, bea):
    machine = make.machine_make(house, "gpu-01")
    document = make.document_make(gpus=8, machines=1)
    document["spec"]["task_template"]["env"] = {"A": "<b>\u202e\x1b[31m"}
    run = make.run_pending(house, document=document)
    assignment = make.run_place(house, run, [machine]).assignments.get()
    assignment.launch["env"] = {"A": "<b>\u202e\x1b[31m"}
    assignment.save()

    assert ">&lt;b&gt;⟨U+202E⟩\u241b[31m " in bea.get(f"{WORKERS}/{assignment.worker.name}").content.decode()
    shown = bea.get(f"/o/acme/w/vision/jobs/main/{run.name}").context["specification"]
    assert '"A": "<b>\\u202e\\u001b[31m"' in shown
    assert json.loads(shown) == run.document


def test_each_attempt_has_its_log(house, bea):
    machine = make.machine_make(house, "gpu-01")
    run = make.run_pending(house, document=make.document_make(gpus=8, machines=1))
    first = make.run_place(house, run, [machine])
    make.log_write(first.assignments.get(), b"first words\n")
    make.run_fail(first)
    second = make.run_place(house, run, [machine])
    make.log_write(second.assignments.get(), b"second words\n")
    make.run_start(second)
    page = text(bea.get(f"{WORKERS}/ddp-resnet50-0"))
    assert "second words" in page
    assert "first words" not in page
    earlier = text(bea.get(f"{WORKERS}/ddp-resnet50-0?attempt=1"))
    assert "first words" in earlier
    assert "second words" in text(bea.get(f"{WORKERS}/ddp-resnet50-0?attempt=77"))


def test_empty_logs_say_why(busy, bea):
    assert "This worker printed nothing." in text(bea.get(f"{WORKERS}/eval-3-0"))
    assert "No output yet." in text(bea.get(f"{WORKERS}/tune-9-0"))


def test_an_unknown_worker(busy, bea):
    assert bea.get(f"{WORKERS}/nothing-0").status_code == 404


def test_the_live_fragment(busy, bea):
    page = text(bea.get(f"{WORKERS}/llm-7-0", headers={"HX-Request": "true"}))
    assert page.count("hx-swap-oob") == 4
    assert "<html" not in page


def test_queries(busy, bea, django_assert_num_queries):
    bea.get(f"{WORKERS}/llm-7-0")
    with django_assert_num_queries(20):
        bea.get(f"{WORKERS}/llm-7-0")
    with django_assert_num_queries(27):  # with the explanation, which is worked out once for each pass
        bea.get(f"{WORKERS}/ddp-resnet50-0")
    with django_assert_num_queries(15):
        bea.get(f"{WORKERS}/ddp-resnet50-0")
