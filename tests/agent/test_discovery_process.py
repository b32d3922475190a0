"""The helper process and its deadlines, with real processes that answer, hang, crash or talk nonsense."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from agent.discovery.answers import NvmlAnswer
from agent.discovery.machine import Discovery
from agent.discovery.nvml_process import Deadlines, Ended, NvmlProcess, Problem, Silent, ask_once
from agent.discovery.sources import Sources
from agent.discovery.tree_recorded import RecordedTree
from tests.agent.agents import ROOT, alive, eventually
from tests.agent.recorded_machines import BOOT, RECORDED, answer_of

pytestmark = pytest.mark.processes

QUICK = Deadlines(first=10.0, next=0.3, restart=0.05)
SLEEP = "import time; time.sleep(600)"
MISMATCH = '{"failure": {"code": 18, "message": "Driver/library version mismatch"}}'


def library(script: str) -> Sequence[str]:
    """A process in the helper's place."""
    return (sys.executable, "-I", "-S", "-c", script)


def says(*lines: str, then: str = "") -> Sequence[str]:
    return library(f"for line in {lines!r}: print(line, flush=True)\n{then}")


class Heard:
    """What came of a helper, in order."""

    def __init__(self, command: Sequence[str], deadlines: Deadlines = QUICK) -> None:
        self.all: list[NvmlAnswer | Problem] = []
        self.process = NvmlProcess(self.all.append, self.all.append, command=command, deadlines=deadlines)

    def first(self, number: int) -> list[NvmlAnswer | Problem]:
        eventually(lambda: len(self.all) >= number, f"{number} pieces of news, there are {self.all}")
        return self.all[:number]


@pytest.fixture
def hear() -> Iterator[Callable[..., Heard]]:
    made: list[Heard] = []

    def start(command: Sequence[str], deadlines: Deadlines = QUICK) -> Heard:
        made.append(Heard(command, deadlines))
        made[-1].process.start()
        return made[-1]

    yield start
    for each in made:
        each.process.close()


def test_a_library_that_hangs_from_the_start(hear, tmp_path: Path) -> None:
    command = library(
        f"import os; open({str(tmp_path / 'pid')!r}, 'a').write(f'{{os.getpid()}}\\n'); {SLEEP}"
    )
    heard = hear(command, Deadlines(first=0.5, next=0.3, restart=0.05))
    assert heard.first(2) == [Silent(0.5), Silent(0.5)], "it is tried again"
    pids = [int(pid) for pid in (tmp_path / "pid").read_text().split()]
    assert not alive(pids[0]), "the one that hung was ended"


def test_a_library_that_hangs_later(hear) -> None:
    heard = hear(says('{"driver_version": "1"}', '{"driver_version": "2"}', then=SLEEP))
    assert heard.first(3) == [NvmlAnswer(driver_version="1"), NvmlAnswer(driver_version="2"), Silent(0.3)]


def test_a_library_that_crashes(hear) -> None:
    heard = hear(says('{"driver_version": "1"}', then="import os; os.kill(os.getpid(), 11)"))
    assert heard.first(2) == [NvmlAnswer(driver_version="1"), Ended(-11)]


def test_a_library_that_does_not_work_says_why_and_is_asked_again(hear) -> None:
    first, second = hear(says(MISMATCH)).first(2)
    assert first == second == NvmlAnswer.model_validate_json(MISMATCH)


def test_nonsense_is_passed_over(hear) -> None:
    heard = hear(says("nvml: warning", "[]", '{"driver_version": "1"}', then=SLEEP))
    assert heard.first(1) == [NvmlAnswer(driver_version="1")]


def test_a_helper_that_cannot_be_started_is_tried_again(hear, tmp_path: Path) -> None:
    program = tmp_path / "helper"
    heard = hear((str(program),))
    program.write_text(f"#!{sys.executable}\nprint({MISMATCH!r})\n")
    program.chmod(0o755)
    assert heard.first(1) == [NvmlAnswer.model_validate_json(MISMATCH)]


def test_closing_ends_the_helper_at_once(hear, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    heard = hear(library(f"import os; open({str(pid)!r}, 'w').write(str(os.getpid())); {SLEEP}"))
    eventually(lambda: pid.exists() and pid.read_text(), "the helper has started")
    began = time.monotonic()
    heard.process.close()
    assert time.monotonic() - began < 5
    assert not alive(int(pid.read_text()))
    assert heard.all == [], "nobody is told of what was wanted"


# --- Asking once


def test_asking_once() -> None:
    assert ask_once(command=says('{"driver_version": "7"}', then=SLEEP)) == NvmlAnswer(driver_version="7")
    assert ask_once(seconds=0.2, command=library(SLEEP)) == Silent(0.2)
    assert ask_once(command=library("import sys; sys.exit(3)")) == Ended(3)


def test_this_machines_own_library_answers_or_says_why_not(tmp_path: Path) -> None:
    """With a driver: its GPUs. Without: the library's own words."""
    answer = ask_once(seconds=90, record=tmp_path / "nvml.json")
    assert isinstance(answer, NvmlAnswer)
    assert bool(answer.failure) != bool(answer.driver_version)
    assert (tmp_path / "nvml.json").exists() == (answer.failure is None)


# --- The thread that looks


@pytest.fixture
def discover(tmp_path: Path) -> Iterator[Callable[..., Discovery]]:
    made: list[Discovery] = []

    def start(command: Sequence[str], *, name: str = "ndr-8", wait: float = 15) -> Discovery:
        tree = RecordedTree.read(RECORDED / name / "tree.json")
        sources = Sources(tree=tree, ask_sm=lambda _port: None, helper=command, deadlines=QUICK)
        made.append(Discovery(tmp_path, BOOT, sources=sources))
        made[-1].start()
        made[-1].wait(wait)
        return made[-1]

    yield start
    for each in made:
        each.close()


def test_the_first_inventory_has_the_gpus(discover) -> None:
    discovery = discover(says(answer_of("ndr-8").model_dump_json(), then=SLEEP))
    assert len(discovery.found.gpus) == 8


def test_a_wedged_driver_holds_nobody_up_and_is_told(discover) -> None:
    answer = answer_of("ndr-8").model_dump_json()
    discovery = discover(says(answer, then=SLEEP))
    eventually(lambda: discovery.found.verdict.bad, "the silence is told")
    found = discovery.found

    assert found.verdict.evidence == "NVML has not answered for 0 s"
    assert {gpu.health for gpu in found.gpus} == {"suspect"}
    assert found.gpus_as_of == pytest.approx(time.time(), abs=60)
    assert len(found.ports) == 8


def test_a_driver_that_never_answered_keeps_an_agent_waiting_for_a_while_only(discover) -> None:
    began = time.monotonic()
    discovery = discover(library(SLEEP), wait=0.5)
    assert 0.5 <= time.monotonic() - began < 5
    assert discovery.found.gpus == ()
    assert len(discovery.found.ports) == 8


def test_a_machine_without_gpus_starts_no_helper(discover, tmp_path: Path) -> None:
    discovery = discover(library(f"open({str(tmp_path / 'started')!r}, 'w')"), name="roce-4")
    assert len(discovery.found.ports) == 4
    assert not (tmp_path / "started").exists()


def test_gpus_known_to_an_earlier_agent_are_told_at_once(discover) -> None:
    discover(says(answer_of("ndr-8").model_dump_json(), then=SLEEP)).close()
    discovery = discover(library(SLEEP), wait=0.5)
    assert [gpu.index for gpu in discovery.found.gpus] == list(range(8))
    assert discovery.found.gpus_as_of == pytest.approx(time.time(), abs=60)


def test_no_thread_is_left_behind(discover) -> None:
    discovery = discover(says(answer_of("ndr-8").model_dump_json(), then=SLEEP))
    discovery.close()
    names = {thread.name for thread in threading.enumerate()}
    assert not names & {"nvml", "discovery"}


def test_a_helper_does_not_outlive_its_agent(tmp_path: Path) -> None:
    """It may hang in the driver and notice nothing: the kernel ends it."""
    script = (
        "import os, time\n"
        "from agent.discovery.helper import _end_with_parent\n"
        "if os.fork(): time.sleep(600)\n"
        "_end_with_parent()\n"
        "print(os.getpid(), flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=ROOT)
    assert parent.stdout is not None
    with parent.stdout as output:
        child = int(output.readline())
    parent.kill()
    parent.wait(10)
    try:
        eventually(lambda: not alive(child), "the child has ended with its parent", 5)
    finally:
        if alive(child):
            os.kill(child, signal.SIGKILL)
