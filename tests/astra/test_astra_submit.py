"""`run`, `submit` and `validate` against a fake console: what they print, what they send, how they exit."""

import json
import signal

import pytest

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


def test_validate_is_offline(astra, console, file, tmp_path):
    assert astra("astraeus", "validate", file).stdout == f"{file} is valid\n"
    wrong = tmp_path / "wrong.json"
    wrong.write_text("{")
    result = astra("astraeus", "validate", file, str(wrong))
    assert (result.exit_code, result.stdout) == (2, f"{file} is valid\n")
    assert result.stderr.startswith(f"{wrong}: This is not JSON")
    assert console.seen == []
