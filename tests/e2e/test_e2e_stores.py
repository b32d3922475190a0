"""Secrets and drives, from the API to the worker: what it gets, and what of it is ever seen again."""

import json
import signal
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.e2e.documents import small
from tests.e2e.world import MACHINES, eventually

pytestmark = pytest.mark.processes

VALUE = "hf_the-value-of-this-test"


@dataclass(frozen=True)
class Stores:
    owner: httpx.Client
    root: Path
    """Where drives may lie."""


@pytest.fixture
def stores(here, tmp_path):
    """An owner's API, and agents that let drives lie in a directory of this test."""
    for name in MACHINES:
        file = here.stack.agents / name / "agent.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "drive_roots": [str(tmp_path)]}))
        here.stack.restart(f"agent-{name}")
    access = here.access
    with here.owner() as owner:
        yield Stores(owner, tmp_path)
        for path in (f"/clusters/{access.cluster}/drives", f"/w/{access.workspace}/secrets"):
            for item in owner.get(path).json()["items"]:
                owner.delete(f"{path}/{item['name']}")


def make(stores, address: str, **order) -> None:
    answer = stores.owner.post(address, json=order)
    assert answer.status_code == 201, answer.text


def drive(stores, name: str, access: str, **order) -> Path:
    """A drive of the demo's cluster, with its directory."""
    path: Path = stores.root / name
    path.mkdir()
    order = {"kind": "shared", "path": str(path), "workspaces": {"vision": access}, **order}
    make(stores, "/clusters/main/drives", name=name, **order)
    return path


def database_has(here, text: str) -> list[str]:
    """Tables in which the text, or its bytes, stands."""
    tables = [name for (name,) in here.sql("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")]
    like = [f"%{text}%", f"%{text.encode().hex()}%"]
    return [
        table
        for table in tables
        if here.sql(f'SELECT count(*) FROM "{table}" t WHERE t::text LIKE ANY(%s)', like) != [(0,)]
    ]


def files_with(directory: Path, text: str) -> list[str]:
    files = [path for path in directory.rglob("*") if path.is_file()]
    assert files
    return [str(path) for path in files if text.encode() in path.read_bytes()]


def test_a_worker_reads_a_secret_and_a_drive_and_the_log_shows_stars(here, stores):
    make(stores, "/w/vision/secrets", name="hf", value=VALUE)
    (drive(stores, "dataset", "read") / "hello.txt").write_text("hello from the drive\n")
    results = drive(stores, "results", "write", kind="machine", machine="gpu-02")
    (results / "run-7").mkdir()
    script = (
        "echo variable $HF_TOKEN of ${#HF_TOKEN}; echo file $(cat /run/secrets/hf); cat /data/set/hello.txt; "
        "(echo no > /data/set/new) 2> /dev/null || echo the dataset is read-only; echo 42 > /results/loss"
    )
    document = small(
        "stores-all",
        script,
        secret_refs=[{"name": "hf", "env": "HF_TOKEN"}, {"name": "hf", "mount_path": "/run/secrets/hf"}],
        datavolume_refs=[
            {"name": "dataset", "mount_path": "/data/set"},
            {"name": "results", "mount_path": "/results", "read_only": False, "sub_path": "run-7"},
        ],
    )
    name = here.submit(document)
    here.wait(name, "Succeeded")

    assert here.whole_log(f"{name}-0") == (
        f"variable *** of {len(VALUE)}\nfile ***\nhello from the drive\nthe dataset is read-only\n"
    )
    assert (results / "run-7" / "loss").read_text() == "42\n"
    assert here.assignments(name) == [(1, f"{name}-0", "gpu-02")], "the one machine that has `results`"
    assert database_has(here, VALUE) == []
    assert files_with(here.stack.instance.directory, VALUE) == [], "neither agents nor logs have it"
    assert VALUE not in here.api.get(f"/runs/{name}").text


def test_a_drive_that_is_not_on_the_machine_is_the_reason(here, stores):
    missing = drive(stores, "gone", "read")
    missing.rmdir()
    name = here.submit(
        small("stores-gone", "true", datavolume_refs=[{"name": "gone", "mount_path": "/data"}])
    )

    status = here.wait(name, "Failed")
    assert f"{missing} is not there." in status["reason"]
    assert status["reason"].startswith("3 attempts in a row never ran.")


def test_a_secret_that_is_removed_and_comes_back(here, stores):
    make(stores, "/w/vision/secrets", name="later", value=VALUE)
    document = small("stores-later", "echo ${LATER:0:3}", secret_refs=[{"name": "later", "env": "LATER"}])
    stopped = here.stack.processes["celery-place"]
    stopped.send(signal.SIGSTOP)
    name = here.submit(document)
    assert stores.owner.delete("/w/vision/secrets/later").status_code == 204
    stopped.send(signal.SIGCONT)
    gone = "The secret later is gone from the workspace. An admin can add it again; or edit the run."
    eventually(lambda: here.status(name)["reason"] == gone, lambda: here.status(name))

    make(stores, "/w/vision/secrets", name="later", value=VALUE)
    here.wait(name, "Succeeded")
    assert here.whole_log(f"{name}-0") == "hf_\n"
