"""Commands against a fake console: what they print, what they send, how they exit."""

import json
import signal

import pytest
import yaml

from tests.astra.fake_server import Log, problem, wait_for

DOCUMENT = {
    "metadata": {"name": "ddp", "labels": {"project": "fabric-check"}},
    "spec": {"task_template": {"image": "i", "command": "c"}},
}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "run.json"
    path.write_text(json.dumps(DOCUMENT))
    return str(path)


# --- Submitting ---------------------------------------------------------------------------------------


def test_submit(astra, console, file):
    result = astra("astraeus", "submit", file, "--set", "spec.priority=5", "--name", "ddp-2")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        "ddp-2 submitted to main: https://console.example.com/o/acme/w/vision/jobs/main/ddp-2\n"
    )
    assert console.seen[0].body["metadata"] == {"name": "ddp-2", "labels": {"project": "fabric-check"}}
    assert console.seen[0].body["spec"]["priority"] == 5


def test_submit_from_stdin(astra, console):
    assert astra("astraeus", "submit", "-", input=json.dumps(DOCUMENT)).exit_code == 0
    assert console.seen[0].body == DOCUMENT


def test_submit_attaches_files(astra, console, file, tmp_path):
    (tmp_path / "train.py").write_text("print(1)\n")
    assert astra("astraeus", "submit", file, "--config", f"{tmp_path}/train.py:/app/train.py").exit_code == 0
    task = console.seen[0].body["spec"]["task_template"]
    assert task["configs"] == [{"mounts": ["/app/train.py"], "value": "print(1)\n"}]


def test_an_invalid_document_is_not_sent(astra, console, tmp_path):
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"metadata": {"name": "A b"}, "spec": {"task_template": {"imag": "i"}}}))
    result = astra("astraeus", "submit", str(path))
    lines = result.stderr.splitlines()
    assert (result.exit_code, result.stdout, console.seen) == (2, "", [])
    assert any(line.startswith("metadata.name: ") for line in lines)
    assert any(line.startswith("spec.task_template.imag: ") for line in lines)


def test_the_server_s_errors_look_the_same(astra, console, file):
    errors = [
        {"path": "spec.cluster", "code": "unknown_cluster", "message": "There is no cluster x."},
        {"path": "spec.priority", "code": "too_high", "message": "An editor may ask for 100.\x1b[2J"},
    ]
    console.answers = [problem(422, "The document has 2 errors.", errors)]
    result = astra("astraeus", "submit", file)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        "spec.cluster: There is no cluster x.\nspec.priority: An editor may ask for 100.\n"
    )


def test_a_name_that_is_taken(astra, console, file):
    console.add_run("ddp")
    result = astra("astraeus", "submit", file)
    assert (result.exit_code, result.stderr) == (1, "Error: There is already a run ddp.\n")


def test_a_submission_is_sent_again_with_the_same_key(astra, console, file):
    console.answers = [(503, b"", {"retry-after": "0"})]
    assert astra("astraeus", "submit", file).exit_code == 0
    first, second = (seen.headers["idempotency-key"] for seen in console.seen)
    assert first == second


def test_dry_run(astra, console, file):
    result = astra("astraeus", "submit", file, "--dry-run")
    assert result.stdout == "Would start now: gpu-01 and gpu-02, one InfiniBand fabric\n"
    assert console.runs == {}
    assert console.seen[0].query == {"dry_run": "true"}


@pytest.mark.parametrize(("state", "code"), [("Succeeded", 0), ("Failed", 1), ("Stopped", 1)])
def test_wait_takes_the_run_s_outcome_over(start, console, file, state, code):
    process = start("astraeus", "submit", file, "--wait")
    wait_for(lambda: "ddp" in console.runs)
    console.set_state("ddp", "Running", "1 of 1 workers running")
    assert process.stdout.readline().startswith(b"ddp submitted to main: ")
    while process.stderr.readline() != b"ddp Running: 1 of 1 workers running\n":
        pass
    console.set_state("ddp", state, "the end")
    out, err = process.communicate(timeout=10)
    assert (process.returncode, out, err.decode()) == (code, b"", f"ddp {state}: the end\n")


def test_a_state_that_the_reason_begins_with_is_said_once(start, console, file):
    process = start("astraeus", "submit", file, "--wait")
    wait_for(lambda: "ddp" in console.runs)
    console.set_state("ddp", "Failed", "Failed: ddp-0 on gpu-01: code 3")
    assert process.communicate(timeout=10)[1].splitlines()[-1] == b"ddp Failed: ddp-0 on gpu-01: code 3"


def test_dry_run_is_not_offered(astra):
    for command in ("run", "submit"):
        assert "--dry-run" not in astra("astraeus", command, "--help").stdout


def test_commands_of_machines_are_not_listed(astra):
    listed = astra("astraeus", "--help").stdout
    assert "  delete " in listed
    for command in ("machines", "cordon", "drain", "label"):
        assert f"  {command} " not in listed


def test_follow_prints_the_logs_and_takes_the_outcome_over(start, console, file):
    process = start("astraeus", "submit", file, "--follow")
    assert process.stdout.readline().startswith(b"ddp submitted to main: ")
    log = console.logs["ddp-0", 1] = Log(b"hello\n", closed=False)
    console.add_run("ddp", "Running", workers=1)
    assert process.stdout.readline() == b"ddp-0 | hello\n"
    console.set_state("ddp", "Failed", "Worker ddp-0: exit code 1")
    log.close()
    out, err = process.communicate(timeout=15)
    assert (process.returncode, out, err) == (1, b"", b"ddp Failed: Worker ddp-0: exit code 1\n")


def test_ctrl_c_while_waiting_leaves_the_run_alone(start, console, file):
    process = start("astraeus", "submit", file, "--wait")
    assert process.stdout.readline().startswith(b"ddp submitted")
    assert process.stderr.readline().startswith(b"ddp Pending")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=10)
    assert (process.returncode, out) == (130, b"")
    assert err == b"\nddp goes on. Stop it with: astra astraeus stop ddp\n"
    assert "ddp" in console.runs


def test_a_run_deleted_while_waited_for(start, console, file):
    process = start("astraeus", "submit", file, "--wait")
    assert process.stdout.readline().startswith(b"ddp submitted")
    console.runs.clear()
    _, err = process.communicate(timeout=10)
    assert process.returncode == 1
    assert err.endswith(b"Error: ddp was deleted before it ended.\n")


# --- Looking ------------------------------------------------------------------------------------------


def test_no_runs_are_a_head_only(astra):
    assert (
        astra("astraeus", "runs").stdout == "NAME                          CLUSTER       STATE       REASON\n"
    )


def test_long_names_widen_the_column_of_all(astra, console):
    console.add_run("a" * 40, "Pending", "waiting")
    console.add_run("b", "Running")
    assert astra("astraeus", "runs").stdout.splitlines() == [
        "NAME" + " " * 38 + "CLUSTER       STATE       REASON",
        "a" * 40 + "  main          Pending     waiting",
        "b" + " " * 41 + "main          Running",
    ]


def test_runs_reads_all_pages(astra, console):
    for number in range(7):
        console.add_run(f"run-{number}")
    console.page_size = 3
    expected = [f"run-{number}" for number in range(7)]
    assert astra("astraeus", "runs", "-o", "name").stdout.split() == expected
    assert astra("astraeus", "runs", "-o", "name", "--limit", "4").stdout.split() == expected[:4]


def test_runs_filters(astra, console):
    result = astra(
        "astraeus",
        "runs",
        "--state",
        "running",
        "--state",
        "failed",
        "--label",
        "a=b",
        "-q",
        "llm",
        "--cluster",
        "main",
        "--limit",
        "5",
    )
    assert result.exit_code == 0
    assert console.seen[0].query == {
        "state": "Running,Failed",
        "label": "a=b",
        "q": "llm",
        "cluster": "main",
        "limit": "5",
    }
    assert astra("astraeus", "runs", "--state", "Sleeping").exit_code == 2


def test_runs_for_programs(astra, console):
    console.add_run("ddp", "Running", "\u202efine\x9b")
    as_json, as_yaml = (astra("astraeus", "runs", "-o", form).stdout for form in ("json", "yaml"))
    assert json.loads(as_json) == yaml.safe_load(as_yaml) == {"items": [console.runs["ddp"]]}
    for text in (as_json, as_yaml):
        assert not set("\u202e\x9b") & set(text)


def test_watch_in_a_pipe_prints_what_changes(start, console):
    console.add_run("a", "Pending", "waiting")
    console.add_run("b", "Running")
    process = start("astraeus", "runs", "--watch")
    shown = [process.stdout.readline().split()[:3] for _ in range(3)]
    assert shown == [
        [b"NAME", b"CLUSTER", b"STATE"],
        [b"a", b"main", b"Pending"],
        [b"b", b"main", b"Running"],
    ]
    console.set_state("a", "Running")
    assert process.stdout.readline().split() == [b"a", b"main", b"Running"]
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=10)
    assert (process.returncode, out, err) == (130, b"", b"")


def test_hostile_text_in_a_table(astra, console):
    console.add_run("ddp", "Running", "\x1b]0;owned\x07one\ntwo \u202eevil")
    assert astra("astraeus", "runs").stdout.splitlines()[1:] == [
        "ddp                           main          Running     one two evil"
    ]


def test_show(astra, console):
    console.add_run(
        "ddp", "Running", "2 of 2 workers running", workers=2, restarts=1, shape=[{"machines": 2, "gpus": 8}],
        network={"code": "infiniband", "text": "one InfiniBand fabric"}, started_at="2026-03-01T14:03:07Z",
    )  # fmt: skip
    console.runs["ddp"]["metadata"]["labels"] = {"project": "fabric-check"}
    lines = astra("astraeus", "show", "ddp").stdout.splitlines()
    assert lines[:7] == [
        "Run       ddp",
        "State     Running",
        "Reason    2 of 2 workers running",
        "Cluster   main",
        "Network   one InfiniBand fabric",
        "Shape     2 machines x 8 GPUs",
        "Attempt   1, 1 restart",
    ]
    assert lines[7].startswith("Started   2026-03-01 14:03:07 (")
    assert lines[8:] == [
        "Labels    project=fabric-check",
        "Page      https://console.example.com/o/acme/w/vision/jobs/main/ddp",
        "",
        "WORKER  STATE    MACHINE  GPUS  REASON",
        "ddp-0   Running  gpu-01   8",
        "ddp-1   Running  gpu-02   8",
    ]
    assert json.loads(astra("astraeus", "show", "ddp", "-o", "json").stdout) == console.runs["ddp"]
    assert astra("astraeus", "show", "ddp", "-o", "name").stdout == "ddp\n"


def test_why(astra, console):
    console.add_run("ddp", "Pending", workers=1)
    console.explanations["ddp"] = {
        "headline": "2 machines with 8 free H100s on one fabric are needed; fabric ib-a has 1 (gpu-01).",
        "pass": 18204,
        "causes": [
            {"kind": "order", "met": True, "text": "Nothing goes first: number 1 in the queue."},
            {"kind": "fit", "met": False, "text": "No set of machines can hold it now."},
        ],
        "changes": [{"text": "Uncordon gpu-04", "result": "gpu-01 and gpu-04, one InfiniBand fabric"}],
        "when": {"text": "At the latest 14:05, when eval-3 reaches its time limit."},
        "domains": [{"name": "ib-a", "found": 1, "needed": 2}, {"name": "ib-b", "found": 0, "needed": 2}],
        "machines": [
            {"name": "gpu-04", "group": "Cordoned", "text": "Cordoned by ops."},
            {
                "name": "gpu-02",
                "group": "Too few free GPUs",
                "causes": ["4 of 8 GPUs free", "held by eval-3"],
            },
        ],
    }
    expected = """\
2 machines with 8 free H100s on one fabric are needed; fabric ib-a has 1 (gpu-01).
As of pass 18204

ok  Order  Nothing goes first: number 1 in the queue.
no  Fit    No set of machines can hold it now.

What would start it now
  Uncordon gpu-04  -> gpu-01 and gpu-04, one InfiniBand fabric

When
  At the latest 14:05, when eval-3 reaches its time limit.

Domains
  ib-a  1 of 2 found
  ib-b  0 of 2 found

Machines
  Cordoned (1)
    gpu-04  Cordoned by ops.
  Too few free GPUs (1)
    gpu-02  4 of 8 GPUs free; held by eval-3
"""
    shown = astra("astraeus", "why", "ddp").stdout
    assert [line.split() for line in shown.splitlines()] == [line.split() for line in expected.splitlines()]
    console.explanations["ddp-0"] = "No fabric has room: ib-a has 1 of 2."
    assert astra("astraeus", "why", "ddp-0").stdout == "No fabric has room: ib-a has 1 of 2.\n"
    assert astra("astraeus", "why", "nosuch").exit_code == 3


def test_why_says_once_what_is_so_on_several_machines(astra, console):
    """As the server answers: a row holds the names of all machines about which the same is to be said."""
    console.add_run("ddp", "Pending", workers=1)
    short = "32 GiB of memory free, 800 GiB needed"
    console.explanations["ddp"] = {
        "headline": "2 machines with 8 free H100s are needed; 1 is free now (gpu-01).",
        "domains": [{"kind": "cluster", "name": "", "found": 1, "needed": 2, "machines": ["gpu-01"]}],
        "machines": [
            {"group": "Ready for this run", "machines": ["gpu-01"], "text": "8 of 8 GPUs free"},
            {"group": "Too little free memory", "machines": ["gpu-02", "gpu-03"], "text": short},
            {
                "group": "Cordoned",
                "machines": [f"gpu-{number}" for number in range(10, 20)],
                "text": "Cordoned; 8 of 8 GPUs free",
            },
        ],
    }
    expected = """\
2 machines with 8 free H100s are needed; 1 is free now (gpu-01).

Machines
  Ready for this run (1)
    gpu-01  8 of 8 GPUs free
  Too little free memory (2)
    gpu-02, gpu-03  32 GiB of memory free, 800 GiB needed
  Cordoned (10)
    gpu-10, gpu-11, gpu-12, gpu-13, gpu-14, gpu-15, gpu-16, gpu-17 and 2 more  Cordoned; 8 of 8 GPUs free
"""
    assert astra("astraeus", "why", "ddp").stdout == expected


def test_events(astra, console):
    console.add_run("ddp")
    console.events["ddp"] = [
        {"at": "2026-03-01T14:03:07Z", "attempt": 0, "state": "Pending", "text": "Submitted by ops"},
        {"at": "2026-03-01T14:03:09Z", "attempt": 1, "state": "Starting", "text": "Placed on 2 machines"},
    ]
    assert astra("astraeus", "events", "ddp").stdout.splitlines() == [
        "TIME                 ATTEMPT  STATE     WHAT",
        "2026-03-01 14:03:07  0        Pending   Submitted by ops",
        "2026-03-01 14:03:09  1        Starting  Placed on 2 machines",
    ]


# --- Acting -------------------------------------------------------------------------------------------


def test_stop_and_restart(astra, console):
    console.add_run("ddp")
    assert astra("astraeus", "stop", "ddp").stdout == "ddp stopping\n"
    assert astra("astraeus", "restart", "ddp").stdout == "ddp restarted\n"
    assert [seen.path.rpartition("/")[2] for seen in console.seen] == ["stop", "restart"]


def test_delete_of_several_goes_on_after_one_that_is_not_there(astra, console):
    console.add_run("a")
    console.add_run("c")
    result = astra("astraeus", "delete", "a", "b", "c")
    assert (result.exit_code, result.stdout) == (3, "a deleted\nc deleted\n")
    assert result.stderr == "b: Error: There is no run b here.\n"


def test_delete_without_waiting(astra, console):
    console.add_run("a")
    assert astra("astraeus", "delete", "--no-wait", "a").stdout == "a is being deleted\n"
    assert "a" in console.runs


def test_machines(astra, console):
    console.machines["gpu-01"] = {
        "metadata": {"name": "gpu-01", "labels": {"topology.astraeus.io/rack": "r7"}},
        "spec": {"pool": "h100"},
        "status": {
            "state": "Ready",
            "gpus_total": 8,
            "gpus_free": 3,
            "gpu_model": "H100",
            "fabric": "ib-a",
            "rack": "r7",
        },
    }
    assert astra("astraeus", "machines").stdout.splitlines() == [
        "NAME                STATE        POOL  GPUS FREE  MODEL  FABRIC  RACK  REASON",
        "gpu-01              Ready        h100  3 of 8     H100   ib-a    r7",
    ]
    assert "Labels      topology.astraeus.io/rack=r7" in astra("astraeus", "machine", "gpu-01").stdout


def test_what_operators_do(astra, console):
    console.machines["gpu-01"] = {"metadata": {"name": "gpu-01"}}
    assert astra("astraeus", "cordon", "gpu-01", "--reason", "changing a cable").stdout == "gpu-01 cordoned\n"
    assert astra("astraeus", "uncordon", "gpu-01").stdout == "gpu-01 uncordoned\n"
    assert astra("astraeus", "drain", "gpu-01", "--within", "30m").stdout == "gpu-01 draining\n"
    assert astra("astraeus", "label", "gpu-01", "a/rack=r7", "old-").stdout == "gpu-01 labelled\n"
    base = "/api/v1/o/acme/clusters/main/machines/gpu-01"
    assert [(seen.method, seen.path.removeprefix(base), seen.body) for seen in console.seen] == [
        ("POST", "/cordon", {"reason": "changing a cable"}),
        ("POST", "/uncordon", {}),
        ("POST", "/drain", {"within_seconds": 1800}),
        ("PATCH", "", {"metadata": {"labels": {"a/rack": "r7", "old": None}}}),
    ]


def test_validate_is_offline(astra, console, file, tmp_path):
    assert astra("astraeus", "validate", file).stdout == f"{file} is valid\n"
    wrong = tmp_path / "wrong.json"
    wrong.write_text("{")
    result = astra("astraeus", "validate", file, str(wrong))
    assert (result.exit_code, result.stdout) == (2, f"{file} is valid\n")
    assert result.stderr.startswith(f"{wrong}: This is not JSON")
    assert console.seen == []
