"""Why a gang is refused: which shape came closest, which domain lacks room, which cause that is."""

from collections.abc import Sequence

import numpy as np

from placement.arrays import Bools
from placement.ask import Ask
from placement.domains import Slots, slots_of
from placement.outcome import Cause, MachineOutcome, Refusal, Rule, Shape
from placement.request import Level
from placement.search import Judgement
from placement.shapes import shapes_of

ADMISSION = (
    Rule.POOL_NOT_ALLOWED,
    Rule.NOT_IN_POOLS,
    Rule.NOT_NAMED,
    Rule.LABEL_MISSING,
    Rule.EXCLUDED,
    Rule.SAME_RUN,
)
"""Rules by which the request and the policy choose machines, before anything about the machine itself."""

_NO_ROOM: dict[Level | None, Cause] = {
    None: Cause.TOO_FEW_MACHINES,
    "fabric": Cause.NO_FABRIC_ROOM,
    "rack": Cause.NO_RACK_ROOM,
    "nvlink_domain": Cause.NO_NVLINK_ROOM,
}


def must_share(ask: Ask, shape: Shape) -> frozenset[Level]:
    """The levels that all machines must share whatever the verdict: the room that a refused gang lacks."""
    if shape.machines == 1:
        return frozenset()
    levels: set[Level] = {ask.group.keep_within} if ask.group.keep_within else set()
    if ask.kinds:
        levels.add("fabric")
    if ask.group.interconnect == "nvlink":
        levels.add("nvlink_domain")
    return frozenset(levels)


def lacking_level(levels: frozenset[Level]) -> Level | None:
    """The level that a refusal is told about: the narrowest of those that must be shared."""
    order: tuple[Level, ...] = ("nvlink_domain", "rack", "fabric")
    return next((level for level in order if level in levels), None)


def refuse(judgement: Judgement) -> Refusal:
    """The refusal of a group that fits nowhere, told for the shape that comes closest."""
    ask = judgement.ask
    if not ask.shapes:
        return _no_shape(judgement)
    slots = {shape: room(ask, shape, judgement.outcome(shape)) for shape in ask.shapes}
    closest = max(
        ask.shapes, key=lambda shape: (slots[shape].counts.max(initial=0) / shape.machines, -shape.machines)
    )
    outcome = judgement.outcome(closest)
    return Refusal(
        cause=_cause(ask, closest, outcome),
        group=ask.index,
        shape=closest,
        other_shapes=tuple(shape for shape in ask.shapes if shape != closest),
        slots=slots[closest],
        outcome=outcome,
    )


def refuse_together(judgements: Sequence[Judgement]) -> Refusal:
    """The refusal of groups that fit alone, but not together: told about the group with the least choice."""
    judgement = min(judgements, key=_spare)
    shape = max(judgement.ask.shapes, key=lambda one: _spare_in(judgement, one))
    outcome = judgement.outcome(shape)
    return Refusal(
        cause=Cause.GROUPS_COLLIDE,
        group=judgement.ask.index,
        shape=shape,
        other_shapes=tuple(other for other in judgement.ask.shapes if other != shape),
        slots=room(judgement.ask, shape, outcome),
        outcome=outcome,
    )


def _spare(judgement: Judgement) -> int:
    return max(_spare_in(judgement, shape) for shape in judgement.ask.shapes)


def _spare_in(judgement: Judgement, shape: Shape) -> int:
    found = room(judgement.ask, shape, judgement.outcome(shape)).counts.max(initial=0)
    return int(found) - shape.machines


def room(ask: Ask, shape: Shape, outcome: MachineOutcome, *, spread: bool = True) -> Slots:
    """The slots in the domains that must hold the gang."""
    links = ask.kinds if shape.machines > 1 else ()
    return slots_of(ask, must_share(ask, shape), links, outcome.usable, every=not spread)


def _no_shape(judgement: Judgement) -> Refusal:
    """Nothing can be split as asked on this cluster's machines: told for the largest number of machines allowed."""
    ask = judgement.ask
    shapes = shapes_of(ask.group, ask.group.gpus)
    shape = shapes[-1] if shapes else Shape(ask.group.machines or 1, ask.group.gpus)
    outcome = judgement.outcome(shape)
    return Refusal(Cause.NO_SHAPE, ask.index, shape, (), room(ask, shape, outcome), outcome)


def _cause(ask: Ask, shape: Shape, outcome: MachineOutcome) -> Cause:
    admitted = _admitted(outcome)
    if not admitted.any():
        return Cause.NONE_SELECTED
    if shape.gpus and not (admitted & (ask.gpus.of_model > 0)).any():
        return Cause.NO_MODEL
    if ask.group.spread and (room(ask, shape, outcome, spread=False).counts >= shape.machines).any():
        return Cause.NO_SPREAD
    return _NO_ROOM[lacking_level(must_share(ask, shape))]


def _admitted(outcome: MachineOutcome) -> Bools:
    """(machines,): machines that policy and request let in at all."""
    admitted = np.ones(outcome.usable.size, dtype=np.bool_)
    for rule in ADMISSION:
        if rule in outcome.refused:
            admitted &= ~outcome.refused[rule]
    return admitted
