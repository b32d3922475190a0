"""Health with hysteresis: signs are believed after a while, and forgotten only after a longer one without them.

Pure: the time comes from outside, as seconds of a clock that never goes back while the machine is up.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from wire.machine_facts import Health

MOST_EVIDENCE = 300
_ORDER: tuple[Health, ...] = ("healthy", "suspect", "faulty")


@dataclass(frozen=True)
class Rule:
    """`enter`: seconds for which a sign must be seen each time before it counts; `leave`: seconds without it."""

    health: Health
    enter: float = 0.0
    leave: float = 900.0


@dataclass(frozen=True)
class Sign:
    """Something seen now. `kind` is one per cause; `evidence` must not change with every look (numbers that grow)."""

    kind: str
    evidence: str
    rule: Rule


class Known(BaseModel):
    """A sign as it is remembered."""

    model_config = ConfigDict(frozen=True)

    health: Health
    evidence: str
    since: float
    seen: float
    enter: float
    leave: float
    counts: bool


State = Mapping[str, Known]
"""Of one GPU, port or machine: kind → sign."""


@dataclass(frozen=True)
class Verdict:
    health: Health
    evidence: str

    @property
    def bad(self) -> bool:
        return self.health != "healthy"


HEALTHY = Verdict("healthy", "")


def followed(state: State, signs: Iterable[Sign], now: float) -> dict[str, Known]:
    """The state after a look that saw exactly `signs`."""
    seen = {sign.kind: _seen(state.get(sign.kind), sign, now) for sign in signs}
    return {**_kept(state, seen.keys(), now), **seen}


def aged(state: State, now: float) -> dict[str, Known]:
    """The state when nothing could be looked at."""
    return {
        kind: known for kind, known in state.items() if now - known.seen < known.leave or not known.counts
    }


def verdict(state: State) -> Verdict:
    """The worst of what counts, with all its evidence, the gravest first."""
    counting = [known for known in state.values() if known.counts]
    if not counting:
        return HEALTHY
    grave = sorted(counting, key=lambda known: (-_ORDER.index(known.health), known.since, known.evidence))
    return Verdict(grave[0].health, "; ".join(known.evidence for known in grave)[:MOST_EVIDENCE])


def worse(one: Verdict, other: Verdict) -> Verdict:
    """Both together."""
    first, second = sorted((one, other), key=lambda each: -_ORDER.index(each.health))
    evidence = "; ".join(each.evidence for each in (first, second) if each.bad)
    return Verdict(first.health, evidence[:MOST_EVIDENCE])


def _seen(known: Known | None, sign: Sign, now: float) -> Known:
    since = known.since if known else now
    return Known(
        health=sign.rule.health,
        evidence=sign.evidence,
        since=since,
        seen=now,
        enter=sign.rule.enter,
        leave=sign.rule.leave,
        counts=(known is not None and known.counts) or now - since >= sign.rule.enter,
    )


def _kept(state: State, seen: Iterable[str], now: float) -> dict[str, Known]:
    """What isn't seen any more, and still counts for a while. A sign that never counted begins anew next time."""
    gone = {kind: known for kind, known in state.items() if kind not in seen and known.counts}
    return aged(gone, now)
