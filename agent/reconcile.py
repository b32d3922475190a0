"""What to do about the difference between what should be and what is. Pure: data in, data out.

`decide` compares the console's desired state with what the agent holds; `next_step` takes one held assignment
a step further. A phase only rises (prepare < check < start < stop), so a stop that overtakes a start wins, and every
message may come twice or late.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Literal

from agent.journal import Facts
from wire.assignments import Assignment, Desired

Phase = Literal["prepare", "check", "start", "stop"]
PHASES: tuple[Phase, ...] = ("prepare", "check", "start", "stop")
MOST_LAUNCHES = 3
"""A supervisor that dies before it started anything may be replaced so often."""


def higher(one: Phase, other: Phase) -> Phase:
    return max(one, other, key=PHASES.index)


@dataclass(frozen=True)
class Held:
    """An assignment the agent has on disk."""

    wanted: Phase
    finished: bool = False
    """Its process tree is gone and the console has its whole log: nothing is left to do or to tell."""


@dataclass(frozen=True)
class Take:
    """An assignment that is new here."""

    assignment: Assignment


@dataclass(frozen=True)
class Raise:
    id: str
    to: Phase


@dataclass(frozen=True)
class Forget:
    id: str


Action = Take | Raise | Forget


def decide(desired: Desired, held: Mapping[str, Held]) -> list[Action]:
    """One action for each assignment that needs one. What the console doesn't list (any more) is disowned:
    stopped, and forgotten once it is finished."""
    actions: list[Action] = []
    listed = {assignment.id: assignment for assignment in desired.assignments}
    for assignment in listed.values():
        here = held.get(assignment.id)
        if here is None:
            actions.append(Take(assignment))
        elif higher(here.wanted, assignment.phase) != here.wanted:
            actions.append(Raise(assignment.id, assignment.phase))
    for name, here in held.items():
        if name in listed:
            continue
        if here.finished:
            actions.append(Forget(name))
        elif here.wanted != "stop":
            actions.append(Raise(name, "stop"))
    return actions


class Step(Enum):
    WAIT = auto()
    """The supervisor works on it."""
    LAUNCH = auto()
    ORDER_START = auto()
    ORDER_STOP = auto()
    ORDER_FAIL = auto()
    """Stop it, for it has failed although it runs."""
    NEVER_RAN = auto()
    """Record that it was stopped before anything was there."""
    GIVE_UP = auto()
    """Record that its supervisor dies every time."""
    LOST = auto()
    """Its supervisor is gone without a record: end what is left of it, then record that."""
    DONE = auto()


def next_step(wanted: Phase, facts: Facts, launches: int, *, failed: bool = False) -> Step:
    """`failed`: watching the worker has come to that."""
    if facts.exit is not None:
        return Step.DONE
    if facts.alive:
        return _order(wanted, facts.phase, failed=failed)
    if facts.marker:
        return Step.LOST
    if wanted == "stop":
        return Step.NEVER_RAN
    return Step.LAUNCH if launches < MOST_LAUNCHES else Step.GIVE_UP


def _order(wanted: Phase, phase: str, *, failed: bool) -> Step:
    if wanted == "stop":
        return Step.ORDER_STOP if phase != "stopping" else Step.WAIT
    if wanted == "start" and phase in ("preparing", "prepared"):
        return Step.ORDER_START
    return Step.ORDER_FAIL if failed and phase == "running" else Step.WAIT
