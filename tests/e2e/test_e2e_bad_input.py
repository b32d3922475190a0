"""What people get wrong, and what a run may not do to its machine."""

import re
from pathlib import Path

import pytest

from tests.e2e.documents import gang, small
from tests.e2e.world import eventually

pytestmark = pytest.mark.processes


def test_an_invalid_document_is_told_whole_and_not_stored(here):
    document = gang("not-stored", "true", stop_grace_seconds=-1, time_limit_seconds="soon")
    document["spec"]["task_template"]["requested_resources"]["machines"] = 0
    document["spec"]["restarts"] = 3

    answer = here.api.post("/runs", json=document)

    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert (problem["status"], problem["code"]) == (422, "invalid_document")
    assert problem["detail"] == "The run was not started: 4 entries need a change."
    assert sorted(error["path"] for error in problem["errors"]) == [
        "spec.restarts",
        "spec.task_template.requested_resources.machines",
        "spec.task_template.stop_grace_seconds",
        "spec.task_template.time_limit_seconds",
    ]
    assert [error for error in problem["errors"] if not error["code"] or " " not in error["message"]] == []
    assert here.api.get("/runs/not-stored").status_code == 404
    assert here.sql("SELECT count(*) FROM runs_run WHERE name = 'not-stored'") == [(0,)]


def test_a_name_is_taken_once(here):
    here.submit(small("taken", "true"))

    answer = here.api.post("/runs", json=small("taken", "true"))

    assert answer.status_code == 409
    assert answer.json()["detail"] == (
        "vision has a run named `taken`. Choose another name, or delete that run first."
    )


def test_a_wrong_token_and_a_foreign_workspace(here):
    wrong = here.api.get("/runs", headers={"authorization": "Bearer ast_wrong"})
    foreign = here.api.get(f"{here.access.url}/api/v1/o/{here.access.organization}/w/other/runs")
    foreign_log = here.api.get(f"{here.access.url}/api/v1/o/other/w/vision/workers/any-0/logs")
    terminal = here.shell("ASTRAEUS_TOKEN=ast_wrong python -m astra astraeus runs")

    assert (wrong.status_code, wrong.headers["www-authenticate"]) == (401, "Bearer")
    assert (foreign.status_code, foreign_log.status_code) == (404, 404)
    for answer in (wrong, foreign, foreign_log):
        assert answer.headers["content-type"] == "application/problem+json"
    assert terminal.returncode == 4
    assert "token" in terminal.stderr
    assert terminal.stdout == ""


def test_a_command_that_does_not_exist(here):
    document = gang("no-command", "", command="torchrum", args=[])

    name = here.submit(document)
    status = here.wait(name, "Failed")

    assert re.fullmatch(
        rf"3 attempts in a row never ran\. {name}-(0 on gpu-01|1 on gpu-02): command not found: torchrum",
        status["reason"],
    )
    assert "Ended on gpu-" in "".join(worker["reason"] for worker in status["workers"])
    assert len(here.assignments(name)) == 6
    [line] = [line for line in here.astra("runs").splitlines() if line.startswith(name)]
    assert line.split(maxsplit=3) == [name, "main", "Failed", status["reason"]]


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("/etc/hostname", id="over-a-file"),
        pytest.param("/etc/e2e.conf", id="inside-a-directory"),
        pytest.param("/usr/lib/e2e/deep/file", id="in-new-directories-inside-one"),
        pytest.param("/app/e2e.py", id="where-nothing-is"),
    ],
)
def test_a_config_is_at_its_path_and_leaves_the_machine_alone(here, path):
    before = listing(path)
    script = f"cat {path}; ls /etc/passwd /usr/lib >/dev/null && echo the rest is there; echo x 2>/dev/null >{path}"

    name = here.submit(small("config", script, configs=[{"mounts": [path], "value": "from the run\n"}]))
    here.wait(name, "Failed")

    assert here.whole_log(f"{name}-0") == "from the run\nthe rest is there\n"
    assert listing(path) == before


def listing(path):
    """What the host has there: the file's content, and what lies in the directories above it."""
    file = Path(path)
    content = file.read_bytes() if file.exists() else None
    above = [sorted(entry.name for entry in up.iterdir()) for up in file.parents if up.is_dir()]
    return content, above


def test_a_config_in_place_of_a_directory_is_refused_by_the_machine(here):
    configs = [{"mounts": ["/usr/lib"], "value": "a file"}]

    name = here.submit(small("config-directory", "true", configs=configs))
    refused = "The config /usr/lib can't be mounted: this machine has a directory there."
    eventually(lambda: refused in here.status(name)["reason"], lambda: here.status(name))

    assert Path("/usr/lib").is_dir()
