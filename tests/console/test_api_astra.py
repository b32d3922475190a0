"""`astra` against a live console: the commands of machines and tokens, and what would become of a run."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from machines.models import Machine, MachineLabel
from runs.models import Run
from tenancy.models import ApiToken
from tenancy.services import token_create
from tests import factories
from tests.support.served import served

__all__ = ["served"]

pytestmark = pytest.mark.django_db(transaction=True)
RACK = "topology.astraeus.io/rack"


@pytest.fixture
def astra(house, served, tmp_path, monkeypatch) -> Callable[..., Any]:
    """Calls `astra astraeus WORDS…` as the organization's owner; a failure fails the test."""
    from astra.app import app

    secret = token_create(
        user=house.ana, organization=house.organization, workspace=None, role="owner", name="laptop"
    )
    variables = {
        "ASTRAEUS_SERVER": served,
        "ASTRAEUS_TOKEN": secret.value,
        "ASTRAEUS_WORKSPACE": "acme/vision",
        "XDG_CONFIG_HOME": str(tmp_path),
        "NO_PROXY": "*",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    def call(*words: str, code: int = 0) -> Any:
        done = CliRunner().invoke(app, ["astraeus", *words], catch_exceptions=False, prog_name="astra")
        assert done.exit_code == code, done.stderr
        return done

    return call


@pytest.fixture
def file(tmp_path) -> str:
    path = tmp_path / "run.json"
    path.write_text(json.dumps(factories.document_make()))
    return str(path)


def test_machines(machines, astra):
    assert astra("machines").stdout.splitlines() == [
        "NAME                STATE        POOL  GPUS FREE  MODEL  FABRIC  RACK  REASON",
        "gpu-01              Ready        h100  8 of 8     H100   ib-a    r1",
        "gpu-02              Ready        h100  8 of 8     H100   ib-a    r1",
    ]
    assert astra("machines", "--state", "cordoned", "-o", "name").stdout == ""
    assert astra("machines", "--label", f"{RACK}=r1", "-o", "name").stdout.split() == ["gpu-01", "gpu-02"]


def test_a_machine(running, astra):
    lines = [line.split() for line in astra("machine", "gpu-01").stdout.splitlines()]
    for expected in (
        ["Machine", "gpu-01", "(simulated)"],
        ["GPUs", "free", "0", "of", "8"],
        ["Rack", "r1"],
        ["INDEX", "HEALTH", "RUN", "WORKER", "EVIDENCE"],
        ["0", "healthy", "ddp-resnet50", "ddp-resnet50-0", "-"],
        ["mlx5_7", "1", "InfiniBand", "ACTIVE", "400.0"],
    ):
        assert expected in lines
    assert astra("machine", "gpu-09", code=3).stderr == "Error: There is no machine `gpu-09` in main.\n"


def test_cordon_drain_and_uncordon(machines, astra):
    assert astra("cordon", "gpu-01", "--reason", "changing a cable").stdout == "gpu-01 cordoned\n"
    assert "Cordoned by ana (token laptop): “changing a cable”" in astra("machine", "gpu-01").stdout
    assert astra("drain", "gpu-01", "--within", "30m").stdout == "gpu-01 draining\n"
    machine = Machine.objects.get(name="gpu-01")
    assert machine.drain_until
    assert machine.draining_at
    assert (machine.drain_until - machine.draining_at).total_seconds() == 1800
    assert astra("uncordon", "gpu-01").stdout == "gpu-01 uncordoned\n"
    assert "State       Ready" in astra("machine", "gpu-01").stdout


def test_labels(machines, astra):
    text = (
        "gpu-01 would be in rack r7 instead of r1. No run that waits would start, or wait longer, for it.\n"
    )
    assert astra("label", "gpu-01", f"{RACK}=r7", "--dry-run").stdout == text
    assert not MachineLabel.objects.filter(found=False).exists()

    assert astra("label", "gpu-01", f"{RACK}=r7", "owner=ops").stdout == "gpu-01 labelled\n"
    assert astra("label", "gpu-01", "owner-").stdout == "gpu-01 labelled\n"
    assert f"{RACK}=r7" in astra("machine", "gpu-01").stdout
    assert list(MachineLabel.objects.filter(found=False).values_list("key", "value")) == [(RACK, "r7")]


def test_what_would_become_of_a_run(house, astra, file):
    factories.machine_make(house, "gpu-01")
    told = astra("submit", file, "--dry-run").stdout.splitlines()
    assert told[0] == "2 machines with 8 free H100s on one fabric are needed; fabric ib-a has 1 (gpu-01)."

    factories.machine_make(house, "gpu-02")
    told = astra("submit", file, "--dry-run").stdout
    assert told == "Would start now: gpu-01 and gpu-02, one rack on one InfiniBand fabric\n"
    flags = ["--name", "small", "--image", "busybox", "--gpus", "1", "--dry-run", "--", "true"]
    assert astra("run", *flags).stdout == "Would start now: gpu-01, one machine\n"
    assert not Run.objects.exists()


def test_a_run_from_submitting_to_deleting(house, astra, file):
    assert astra("submit", file).stdout.startswith("ddp-resnet50 submitted to main: ")
    assert [line.split()[:3] for line in astra("runs", "--state", "pending").stdout.splitlines()[1:]] == [
        ["ddp-resnet50", "main", "Pending"]
    ]
    assert "Queued; the next pass is due within seconds" in astra("events", "ddp-resnet50").stdout
    assert "WORKER" in astra("show", "ddp-resnet50").stdout
    assert astra("logs", "ddp-resnet50-0").stdout == ""
    assert astra("delete", "ddp-resnet50").stdout == "ddp-resnet50 deleted\n"
    assert not Run.objects.exists()


def test_tokens(house, astra):
    made = astra("token", "create", "ci", "--role", "editor", "--expires", "90d")
    token = ApiToken.objects.get(name="ci")
    assert (made.stdout[:12], made.stderr) == (token.prefix, f"Token {token.id} (ci) is shown this once:\n")
    assert astra("token", "list").stdout.splitlines()[1].split()[:4] == [str(token.id), "ci", "editor", "ana"]
    assert astra("token", "revoke", str(token.id)).stdout == f"token {token.id} revoked\n"
    assert astra("token", "list").stdout.rstrip().endswith("revoked")
    assert astra("token", "revoke", "999999", code=3).stderr == "Error: There is no token 999999 here.\n"
