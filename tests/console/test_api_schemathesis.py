"""schemathesis over the served schema: every operation, every check, signed in as the organization's owner.

`SCHEMATHESIS_EXAMPLES=100` asks for more than the handful of examples an operation that fit into a minute.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runs.models import Run, WorkloadName
from tenancy.models import ApiToken
from tenancy.services import token_create
from tests import factories
from tests.support.served import served

__all__ = ["served"]

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.processes]
CONFIG = Path(__file__).with_name("schemathesis.toml")
EXAMPLES = os.environ.get("SCHEMATHESIS_EXAMPLES", "5")


@pytest.fixture
def token(house) -> str:
    """An owner's, in a world with one of everything that an address can name."""
    for name in ("gpu-01", "gpu-09"):
        factories.machine_make(house, name, gpus=2)
    for name in ("ddp-resnet50", "short-lived"):
        factories.run_pending(house, name)
    for store in (None, "short-lived"):
        factories.stores_make(house, store)
    made: dict[str, Any] = {"user": house.ana, "organization": house.organization, "name": "schemathesis"}
    token_create(**made, workspace=house.workspace, role="viewer")
    ApiToken.objects.update(id=1)  # the one that may be revoked
    return token_create(**made, workspace=None, role="owner").value


def test_the_api_does_what_its_schema_says(served, token, tmp_path):
    command = [
        sys.executable,
        "-m",
        "schemathesis.cli",
        "--config-file",
        str(CONFIG),
        "run",
        f"{served}/api/schema",
    ]
    options = ["--url", served, "--header", f"Authorization: Bearer {token}", "--checks", "all", "--no-color"]
    done = subprocess.run(
        [*command, *options, "--max-examples", EXAMPLES, "--continue-on-failure", "--warnings", "off"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]
    assert "No issues found" in done.stdout
    assert Run.objects.count() > 0
    assert WorkloadName.objects.filter(run__name="short-lived").count() == 0
