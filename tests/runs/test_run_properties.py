"""Whatever order reports come in, what must never happen does not happen."""

from collections import Counter

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from machines.models import Machine
from runs.models import Allocation, Assignment, RunAttempt, RunEvent
from runs.scheduling.passes import cluster_pass
from runs.services import run_stop
from runs.states import RUN_ENDED, WORKER_ENDED, WorkerState
from tests import factories
from tests.support.gangs import CRASH, SUCCESS, Gang, back_off_over, ended, report, tell
from wire.agent_messages import AssignmentReport, Exit

STATES = ["preparing", "ready", "running", "stopping"]
EXITS = [SUCCESS, CRASH, Exit(kind="stopped", signal=15), Exit(kind="not_prepared", message="no such image")]
RANK = st.integers(0, 2)
REPORT = st.tuples(st.just("report"), RANK, st.sampled_from(STATES))
ENDED = st.tuples(st.just("ended"), RANK, st.sampled_from(EXITS), st.booleans())
OTHER = st.sampled_from([("advance",), ("pass",), ("forgotten", 0), ("forgotten", 2), ("stop",), ("again",)])
STEPS = st.lists(st.one_of(REPORT, REPORT, ENDED, OTHER, st.just(("advance",))), min_size=5, max_size=30)


class Interleaving(TestCase):
    """Three machines, one run of three workers with restarts: `steps` is what happens, in this order."""

    def begin(self):
        """Inside the example's transaction."""
        self.house = factories.house_make()
        self.machines = [factories.machine_make(self.house, f"gpu-0{number}") for number in (1, 2, 3)]
        document = factories.document_make("ddp", gpus=24, machines=3, max_restarts=2)
        self.gang = Gang(factories.run_pending(self.house, "ddp", document=document))
        self.reached: dict[str, str] = {}
        self.said: list[tuple[Machine, AssignmentReport]] = []

    @settings(
        max_examples=20,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.differing_executors],
    )
    @given(STEPS)
    def test_no_order_of_reports_breaks_the_house(self, steps):
        self.begin()
        cluster_pass(self.house.cluster.id)
        for step in steps:
            self.do(*step)
            self.check()
        self.finish()

    def do(self, what, *arguments):
        getattr(self, f"do_{what}")(*arguments)

    def member(self, rank) -> Assignment | None:
        members = self.gang.members
        return members[rank] if members else None

    def do_report(self, rank, state):
        self.say(self.member(rank), lambda member: report(member, state))

    def do_ended(self, rank, exit_, gone):
        self.say(self.member(rank), lambda member: ended(member, exit_, gone=gone))

    def say(self, member, made):
        if member is not None:
            self.said.append((member.machine, made(member)))
            tell(*self.said[-1])

    def do_again(self):
        """Everything said so far arrives once more, backwards."""
        for machine, old in reversed(self.said):
            tell(machine, old)

    def do_forgotten(self, rank):
        member = self.member(rank)
        if member is not None:
            tell(member.machine, applied=member.revision)

    def do_advance(self):
        self.gang.advance()

    def do_pass(self):
        back_off_over(self.gang)
        cluster_pass(self.house.cluster.id)

    def do_stop(self):
        run_stop(run=self.gang.run, actor=factories.actor_of(self.house.bea))

    def check(self):
        held = Allocation.objects.filter(released_at=None)
        gpus = Counter(held.exclude(gpu=None).values_list("gpu_id", flat=True))
        assert not gpus or max(gpus.values()) == 1, "a GPU is held twice"
        gone = dict(Assignment.objects.values_list("id", "gone_at"))
        for assignment_id, released in Allocation.objects.values_list("assignment_id", "released_at"):
            assert (released is not None) == (gone[assignment_id] is not None), (
                "released when gone, only then"
            )
        assert RunAttempt.objects.exclude(state="ended").count() <= 1
        for assignment in Assignment.objects.all():
            before = self.reached.get(str(assignment.id), "Placed")
            assert rank_of(assignment.state) >= rank_of(before), f"{before} fell to {assignment.state}"
            self.reached[str(assignment.id)] = assignment.state

    def finish(self):
        """Agents come to an end with everything, an owner stops what is left: one ended state, nothing held."""
        self.do_stop()
        for _ in range(3):
            self.gang.advance()
            for assignment in Assignment.objects.filter(gone_at=None).select_related("machine"):
                tell(assignment.machine, ended(assignment, Exit(kind="stopped", signal=15)))
        self.gang.advance()
        self.check()
        assert self.gang.fresh.state in RUN_ENDED
        assert self.gang.held() == 0
        over = RunEvent.objects.filter(run=self.gang.run, state__in=RUN_ENDED)
        assert list(over.values_list("state", flat=True)) == [self.gang.fresh.state]


def rank_of(state: str) -> int:
    order = ["Placed", "Preparing", "Ready", "Running", "Stopping", "Lost"]
    return len(order) if WorkerState(state) in WORKER_ENDED - {WorkerState.LOST} else order.index(state)
