"""Why a gang is refused: which shape came closest, which domain lacks room, which cause that is."""

from collections.abc import Sequence

import numpy as np

from placement.arrays import Bools
from placement.ask import Ask
from placement.domains import Slots
from placement.outcome import Cause, Refusal
from placement.request import Level
from placement.room import has_room, lacking_level, must_share, room
from placement.rules import QUOTA, RESERVATION, MachineOutcome, Rule
from placement.search import Judgement
from placement.shapes import Shape, shapes_of

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


def refuse(judgement: Judgement) -> Refusal:
    """The refusal of a group that fits nowhere, told for the shape that comes closest."""
    ask = judgement.ask
    if not ask.shapes:
        return _no_shape(judgement)
    closed = _closed(judgement)
    if closed is not None:
        return _refusal(judgement, *closed)
    rooms = {shape: room(ask, shape, judgement.outcome(shape).usable) for shape in ask.shapes}
    closest = max(rooms, key=lambda shape: _closeness(shape, rooms[shape]))
    cause = _cause(ask, closest, judgement.outcome(closest))
    return _refusal(judgement, cause, closest, rooms[closest])


def _closeness(shape: Shape, slots: Slots) -> tuple[float, int]:
    return slots.counts.max(initial=0) / shape.machines, -shape.machines


def _refusal(judgement: Judgement, cause: Cause, shape: Shape, slots: Slots | None = None) -> Refusal:
    """`slots`: where they are known already."""
    outcome = judgement.outcome(shape)
    return Refusal(
        cause=cause,
        group=judgement.ask.index,
        shape=shape,
        other_shapes=tuple(other for other in judgement.ask.shapes if other != shape),
        slots=slots or room(judgement.ask, shape, outcome.usable),
        outcome=outcome,
    )


def _closed(judgement: Judgement) -> tuple[Cause, Shape] | None:
    """The order or policy that alone stands in the way, and the first shape that would have room without it.

    Lifting a reservation comes before lifting a quota: a run that waits for its turn alone is told so.
    """
    request = judgement.ask.request
    quotas = request.over_cap or request.guaranteed_to_others
    for cause, rules in (
        (Cause.MACHINES_RESERVED, RESERVATION if request.reserved else ()),
        (Cause.POOLS_CLOSED, (*QUOTA, *RESERVATION) if quotas else ()),
    ):
        for shape in judgement.ask.shapes if rules else ():
            usable = judgement.outcome(shape).usable_but_for(rules)
            if has_room(judgement.ask, shape, usable):
                return cause, shape
    return None


def refuse_together(judgements: Sequence[Judgement]) -> Refusal:
    """The refusal of groups that fit alone, but not together: told about the group with the least choice."""
    judgement = min(judgements, key=_spare)
    shape = max(judgement.ask.shapes, key=lambda one: _spare_in(judgement, one))
    return _refusal(judgement, Cause.GROUPS_COLLIDE, shape)


def _spare(judgement: Judgement) -> int:
    return max(_spare_in(judgement, shape) for shape in judgement.ask.shapes)


def _spare_in(judgement: Judgement, shape: Shape) -> int:
    found = room(judgement.ask, shape, judgement.outcome(shape).usable).counts.max(initial=0)
    return int(found) - shape.machines


def _no_shape(judgement: Judgement) -> Refusal:
    """Nothing can be split as asked on this cluster's machines: told for the largest number of machines allowed."""
    ask = judgement.ask
    shapes = shapes_of(ask.group, ask.group.gpus)
    shape = shapes[-1] if shapes else Shape(ask.group.machines or 1, ask.group.gpus)
    outcome = judgement.outcome(shape)
    return Refusal(Cause.NO_SHAPE, ask.index, shape, (), room(ask, shape, outcome.usable), outcome)


def _cause(ask: Ask, shape: Shape, outcome: MachineOutcome) -> Cause:
    admitted = _admitted(outcome)
    if not admitted.any():
        return Cause.NONE_SELECTED
    if shape.gpus and not (admitted & (ask.gpus.of_model > 0)).any():
        return Cause.NO_MODEL
    if ask.group.spread and (room(ask, shape, outcome.usable, spread=False).counts >= shape.machines).any():
        return Cause.NO_SPREAD
    return _NO_ROOM[lacking_level(must_share(ask, shape))]


def _admitted(outcome: MachineOutcome) -> Bools:
    """(machines,): machines that policy and request let in at all."""
    admitted = np.ones(outcome.usable.size, dtype=np.bool_)
    for rule in ADMISSION:
        if rule in outcome.refused:
            admitted &= ~outcome.refused[rule]
    return admitted
