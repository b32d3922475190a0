"""kill -9 of the console's processes and services while a run prints: nothing is lost, nothing placed twice."""

import json

import pytest

from tests.e2e.documents import NUMBERED, gang, small
from tests.e2e.world import eventually

pytestmark = pytest.mark.processes


def kill_console(here):
    here.stack.kill("console")
    work_goes_on(here)
    here.stack.restart("console")
    here.stack.wait_ready()


def kill_workers_and_beat(here):
    names = ("celery-place", "celery-react", "celery-beat")
    for name in names:
        here.stack.kill(name)
    submit_more(here)
    for name in names:
        here.stack.restart(name)
    here.stack.wait_ready()


def flush_redis(here):
    client = here.redis()
    for _ in range(3):
        client.flushall()
        submit_more(here)
    client.close()


def restart_redis(here):
    here.kill_redis()
    submit_more(here)
    here.start_redis()


def restart_postgres(here):
    here.kill_postgres()
    work_goes_on(here)
    here.start_postgres()


def work_goes_on(here):
    """The workers print while the console can't hear it."""
    log = here.directory("through-0") / "log"
    size = log.stat().st_size
    eventually(lambda: log.stat().st_size > size + 100, "the worker goes on printing")


def submit_more(here):
    here.submit(small(f"meanwhile-{len(here.submitted)}", "echo done"))


@pytest.mark.parametrize(
    "fault", [kill_console, kill_workers_and_beat, flush_redis, restart_redis, restart_postgres]
)
def test_nothing_is_lost_and_nothing_placed_twice(here, fault):
    name = here.submit(gang("through", NUMBERED))
    here.wait_running(name)
    here.wait_lines(f"{name}-0", 3)
    before = {rank: here.processes(f"{name}-{rank}") for rank in (0, 1)}

    fault(here)
    submit_more(here)

    for other in here.submitted[1:]:
        here.wait(other, "Succeeded")
        assert here.whole_log(f"{other}-0") == "done\n"
        assert len(here.assignments(other)) == 1, here.history(other)
    shown = here.log(f"{name}-0").count("\n")
    here.wait_lines(f"{name}-0", shown + 5)
    assert {rank: here.processes(f"{name}-{rank}") for rank in (0, 1)} == before
    here.stop(name)
    assert here.numbered_whole(f"{name}-0")
    assert here.numbered_whole(f"{name}-1")
    assert here.assignments(name) == [(1, f"{name}-0", "gpu-01"), (1, f"{name}-1", "gpu-02")]
    assert here.sql("SELECT count(*) FROM runs_allocation WHERE released_at IS NULL") == [(0,)]


def test_what_ends_while_the_console_is_dead_is_known_afterwards(here):
    name = here.submit(gang("ends-alone", "for i in 1 2 3; do echo line $i; sleep 0.3; done"))
    here.wait_running(name)

    here.stack.kill("console")
    ends = [here.directory(f"{name}-{rank}") / "exit.json" for rank in (0, 1)]
    eventually(lambda: all(end.exists() for end in ends), "both workers have ended")
    here.stack.restart("console")
    here.stack.wait_ready()

    here.wait(name, "Succeeded")
    assert here.whole_log(f"{name}-0") == here.whole_log(f"{name}-1") == "line 1\nline 2\nline 3\n"


def test_a_console_killed_while_a_gang_starts(here):
    name = here.submit(gang("console-killed-early", NUMBERED))
    eventually(lambda: list(here.stack.agents.glob("gpu-01/assignments/*/launch")), "gpu-01 prepares")

    for victim in ("console", "celery-react"):
        here.stack.kill(victim)
    for victim in ("console", "celery-react"):
        here.stack.restart(victim)
    here.stack.wait_ready()

    here.wait_running(name)
    here.wait_lines(f"{name}-0", 3)
    here.stop(name)
    assert here.numbered_whole(f"{name}-0")
    assert here.numbered_whole(f"{name}-1")
    assert len(here.assignments(name)) == 2


def test_a_console_killed_while_a_gang_checks_its_network(here):
    """The members' check goes on without it; what it has come to opens the barrier afterwards."""
    document = gang("console-killed-checking", NUMBERED)
    document["spec"]["task_template"]["requested_resources"]["network"] = {"preflight": "allreduce"}
    name = here.submit(document)
    checking = "SELECT count(*) FROM runs_assignment WHERE detail = 'Checking the all-reduce with the others'"
    eventually(lambda: here.sql(checking) == [(2,)], lambda: here.status(name), 60)

    victims = ("console", "celery-react", "celery-place", "celery-beat")
    for victim in victims:
        here.stack.kill(victim)
    checks = [here.directory(f"{name}-{rank}") / "preflight.json" for rank in (0, 1)]
    eventually(lambda: all(json.loads(check.read_text())["passed"] for check in checks), "it has passed", 120)
    for victim in victims:
        here.stack.restart(victim)
    here.stack.wait_ready()

    here.wait_running(name)
    here.wait_lines(f"{name}-0", 3)
    here.stop(name)
    assert here.numbered_whole(f"{name}-0")
    assert here.numbered_whole(f"{name}-1")
    assert len(here.assignments(name)) == 2
    told = "SELECT count(*) FROM runs_workerevent WHERE reason->>'text' LIKE 'All-reduce checked%%'"
    noted = here.sql(told)
    assert noted == [(2,)], "once for each worker"
