"""One console with two machines for all end-to-end tests: they differ in their runs' names."""

import json

import pytest

from console.local.instance import ROOT
from tests.e2e.world import MACHINES, world


@pytest.fixture(scope="session")
def whole_world(tmp_path_factory):
    root = tmp_path_factory.mktemp("e2e")
    for name in MACHINES:
        inventory = json.loads((ROOT / "worker_image" / "demo" / f"{name}.json").read_text())
        # Large enough for the reference's run: 96 cores and 800 GiB a machine.
        inventory["machine"] = {"cpu_cores": 192, "memory_bytes": 2 * 1024**4}
        (root / f"{name}.json").write_text(json.dumps(inventory))
    with world(root, root) as found:
        yield found


@pytest.fixture
def here(whole_world):
    """The console; afterwards the test's runs are gone and what it killed runs again."""
    yield whole_world
    whole_world.mend()
    whole_world.clean()
