"""Workers that start on their own, with real agents and processes."""

import pytest

from tests.e2e.documents import small
from tests.e2e.world import eventually

pytestmark = pytest.mark.processes

FIRST_FAILS_ONCE = (
    'echo "$RANK of $WORLD_SIZE, restart $SLURM_RESTART_COUNT, $PET_NNODES node"; '
    '[ "$RANK.$SLURM_RESTART_COUNT" = 0.0 ] && exit 3; exit 0'
)


def test_one_fails_and_restarts_alone_the_third_waits_for_a_machine(here):
    """Two machines, three workers: the run ends when each has succeeded on its own.

    Attempts are not counted: here all machines are one host, so that two workers may want its port at the same time.
    """
    wanted = {"start": "Independent", "on_failure": "RestartTask", "max_restarts": 1}
    name = here.submit(small("sweep", FIRST_FAILS_ONCE, workers=3, **wanted))
    eventually(lambda: failed_once(here, name), lambda: here.history(name))
    here.skip_backoff(name)
    status = here.wait(name, "Succeeded")

    assert (status["reason"], status["restarts"]) == ("3 of 3 workers succeeded", 1)
    assert [worker["exit_code"] for worker in status["workers"]] == [0, 0, 0]
    assert [here.whole_log(f"{name}-{rank}") for rank in range(3)] == [
        "0 of 3, restart 1, 1 node\n",
        "1 of 3, restart 0, 1 node\n",
        "2 of 3, restart 0, 1 node\n",
    ]
    assert {machine for _, _, machine in here.assignments(name)} == {"gpu-01", "gpu-02"}
    described = here.astra("show", name)
    assert "3 of 3 workers succeeded" in described
    assert [f"{name}-{rank} " in described for rank in range(3)] == [True, True, True]
    assert "3 machines" in described


def failed_once(here, name: str) -> bool:
    """The first worker has failed and waits for its next attempt."""
    return any(
        text.startswith(f"{name}-0: Attempt") and "code 3" in text for _, _, text in here.history(name)
    )
