"""When a run will start, at the latest, and by what; or why no time can be given."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from placement import Refusal, words
from placement.explain import nearest_row
from placement.future import earliest
from placement.phrases import plural
from runs.explaining.held import Held
from runs.explaining.moments import moment_words, names_words
from runs.explaining.policy import PoolUse, quota_frees_at
from runs.models import Reservation, Run
from runs.reasons import SOMEBODY_S_RUN
from runs.scheduling.records import Recalled
from runs.states import WaitKind
from wire.spec import stored_document

NEVER = "Never on this cluster as it stands. It stays in the queue and is tried again whenever the cluster changes."


@dataclass(frozen=True, slots=True)
class Asked:
    """A run that waits, and what is known beside it."""

    run: Run
    recalled: Recalled
    held: Held
    pools: Sequence[PoolUse]
    now: datetime
    alike: int | None = None
    """Of a worker that starts on its own: how many of its run are like it."""

    @property
    def gpus(self) -> int:
        return sum(group.gpus for group in self.recalled.request.groups)

    def names(self, keys: Iterable[int]) -> str:
        """Runs by id, as the run's workspace may see them."""
        wanted, workspace = set(keys), self.run.workspace_id
        found = [holder for holder in self.held.holders if not wanted.isdisjoint(holder.keys)]
        return names_words(
            holder.name if holder.workspace_id == workspace else SOMEBODY_S_RUN for holder in found
        )

    def unlimited(self, keys: Iterable[int]) -> list[int]:
        """Those of them that have no time limit."""
        wanted = set(keys)
        return [
            each.run_id
            for each in self.held.holders
            if each.ends_at is None and not wanted.isdisjoint(each.keys)
        ]


def when_of(asked: Asked) -> dict[str, Any]:
    """{"at", "text"}: `at` only where a time is sure, if nothing is stopped or breaks meanwhile."""
    run = asked.run
    if text := _told_by_itself(run, asked.now):
        return _when(text)
    if made := Reservation.objects.filter(run=run.id).first():
        return _reserved(asked, made)
    by_kind = {WaitKind.POLICY: _policy, WaitKind.ORDER: _order}
    return by_kind.get(WaitKind(run.wait_kind or WaitKind.FIT), _room)(asked)


def _told_by_itself(run: Run, now: datetime) -> str:
    """Where no machine has to be looked at."""
    if run.not_before is not None and run.not_before > now:
        return f"It is queued again at {moment_words(run.not_before, now)}, after its back-off."
    if run.reason.get("code") == "patience" and run.patient_since:
        until = run.patient_since + timedelta(seconds=stored_document(run.document).patience_seconds)
        return f"At the latest {moment_words(until, now)}, when its patience ends, if there still is room for it."
    if (run.explanation or {}).get("wait", {}).get("cause") == "making_room":
        return "As soon as what is being stopped in its favour has ended."
    return NEVER if run.wait_kind == WaitKind.NEVER else ""


def _order(_: Asked) -> dict[str, Any]:
    return _when(
        "No time can be given: it starts when those that go first have started and leave room for it."
    )


def _when(text: str, at: datetime | None = None) -> dict[str, Any]:
    return {"at": at, "text": text}


def _reserved(asked: Asked, made: Reservation) -> dict[str, Any]:
    """The pass keeps machines for it."""
    waits_for = made.waits_for
    if made.starts_at is not None:
        at = moment_words(made.starts_at, asked.now)
        because = f", when {asked.names(waits_for)} {_reach(waits_for)}" if waits_for else ""
        return _when(f"At the latest {at}{because}.", made.starts_at)
    endless = asked.unlimited(waits_for) or waits_for
    verb = "has" if len(endless) == 1 else "have"
    kept = plural(len(made.machines), "machine")
    are = "is" if len(made.machines) == 1 else "are"
    return _when(
        f"No time can be given: {asked.names(endless)} {verb} no time limit. {kept} {are} reserved for this run."
    )


def _reach(keys: Sequence[int]) -> str:
    return "reaches its time limit" if len(keys) == 1 else "have reached their time limits"


def _policy(asked: Asked) -> dict[str, Any]:
    """The cap's own runs must end, whatever machines are free."""
    closed = next((pool for pool in asked.pools if pool.closed == "pool_cap"), None)
    if closed is None:
        return _when(
            "No time can be given: it starts when the workspaces to which the pool is guaranteed leave room."
        )
    freed = quota_frees_at(closed, asked.gpus)
    if freed is None:
        return _when(f"Never with this quota: it asks for more than the cap of pool {closed.pool}.")
    at, name = freed
    if at is None:
        return _when(f"No time can be given: {name} uses this quota and has no time limit.")
    return _when(
        f"The quota has room at the latest {moment_words(at, asked.now)}, when {name} reaches its time limit."
    )


def _room(asked: Asked) -> dict[str, Any]:
    """No machines are kept for it: what ends next may go to runs that go first."""
    holdings = [holder.holding for holder in asked.held.holders]
    found = earliest(asked.recalled.snapshot, asked.recalled.request, holdings)
    if found is None:
        return _when(_no_end_helps(asked))
    if found.at is None:
        endless = asked.unlimited(found.waits_for) or found.waits_for
        verb = "has" if len(endless) == 1 else "have"
        return _when(f"No time can be given: {asked.names(endless)} {verb} no time limit.")
    at = datetime.fromtimestamp(found.at, UTC)
    if not found.waits_for:
        return _when("There is room for it now; the next pass places it, unless others go first.")
    where = words.placement_sentence(found.placement.as_data())
    return _when(
        f"At the latest {moment_words(at, asked.now)}, when {asked.names(found.waits_for)} "
        f"{_reach(found.waits_for)}, unless runs that go first take its place: {where}."
    )


_MENDS: Mapping[str, str] = {
    "port_slow": "no run that ends brings a faster port. Lower the speed, or have the ports repaired.",
    "port_down": "no run that ends brings a port up. Have it repaired.",
    "gpus_suspect": "no run that ends makes GPUs healthy. Allow GPUs with warning signs, or have them repaired.",
    "gpus_faulty": "no run that ends repairs a GPU.",
    "cordoned": "no run that ends lifts a cordon. Ask for the machines that are cordoned.",
    "draining": "no run that ends stops the draining of machines.",
    "unreachable": "no run that ends brings unreachable machines back.",
    "contested": "no run that ends stops a machine's second agent.",
    "quarantined": "no run that ends brings quarantined machines back.",
}
"""By the main cause of the machine that is nearest and not usable."""


def _no_end_helps(asked: Asked) -> str:
    answer = asked.recalled.answer
    row = nearest_row(answer.outcome) if isinstance(answer, Refusal) else None
    nearest = row["codes"][0] if row else ""
    return f"No time can be given: {_MENDS.get(nearest, 'no run that ends makes enough room for it.')}"
