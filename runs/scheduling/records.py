"""What passes saw and decided, kept so that each of their judgements can be had again.

A pass writes at its end, in bulk: the cluster as it found it (`PassRecord`; one is reused while nothing has changed),
what it did to it in order (`steps`), and the judgements worth keeping (`DecisionRecord`). Reading replays: the snapshot
with the steps that came before, the request, and the engine.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from machines.models import Cluster
from placement import Placement, Refusal, Request, Snapshot, place
from placement.holdings import Hold
from placement.record import (
    answer_digest,
    hold_of_data,
    ranks_data,
    request_data,
    request_of_data,
    snapshot_load,
    state_dump,
    topology_digest,
    topology_dump,
    topology_load,
)
from placement.topology import Topology
from runs.lemons import lemon_tiers
from runs.models import DecisionRecord, PassRecord, Run, TopologyRecord
from runs.scheduling.request import Lemons, pools_allowed, request_of
from wire.spec import stored_document

Step = dict[str, Any]
"""One of {"take": ranks}, {"claim": {"run", "holds"}}, {"reserve": {"run", "machines", "at"}}."""
Answer = Placement | Refusal

TOPOLOGIES_KEPT = 4
"""Read topologies that a process keeps: parsing one takes longer than all the rest of a replay."""


# --- Writing --------------------------------------------------------------------------------------

_written: dict[int, tuple[Topology, int]] = {}
"""Cluster → the topology last seen, and its record's id: passes share one for as long as nothing of it changes."""


@dataclass(frozen=True, slots=True)
class _Decision:
    run_id: int
    placed: bool
    step: int
    request: Request
    answer: Answer


class Recorder:
    """One pass's record. Nothing is computed or written before `close`: a pass pays only for what is kept."""

    def __init__(self, cluster: Cluster, snapshot: Snapshot, now: datetime) -> None:
        self._cluster = cluster
        self._snapshot = snapshot
        self._now = now
        self._steps: list[Step] = []
        self._decisions: list[_Decision] = []

    @property
    def step(self) -> int:
        """Steps so far: what a judgement made now must be replayed after (`Run.judged["step"]`)."""
        return len(self._steps)

    def step_take(self, placement: Placement) -> None:
        """The placement's workers hold what it says from here on."""
        self._steps.append({"take": ranks_data(placement)})

    def step_claim(self, run_id: int, holds: Iterable[Hold]) -> None:
        """From here on this is closed to all other runs, in place of what the run claimed before; () ends its claim."""
        self._steps.append({"claim": {"run": run_id, "holds": [_hold_data(hold) for hold in holds]}})

    def step_reserve(self, run_id: int, machines: Iterable[str], at: float | None) -> None:
        """Those machines are kept for a run that can't start yet; `at`: epoch seconds, at the latest, if known."""
        self._steps.append({"reserve": {"run": run_id, "machines": sorted(machines), "at": at}})

    def decision(self, run_id: int, request: Request, answer: Answer, *, placed: bool) -> None:
        """A judgement to keep, made after the steps so far: of a placement, or of a wait whose cause is new.

        `answer` is the engine's for `request`: a replay must give the same. For a placement: before its `step_take`.
        """
        self._decisions.append(_Decision(run_id, placed, self.step, request, answer))

    @transaction.atomic
    def close(self) -> int:
        """Writes what is new; the id of the pass's record, for `Run.judged["record"]`."""
        # Against the sweep, which would take away the record that is about to be reused.
        Cluster.objects.select_for_update(no_key=True).get(id=self._cluster.id)
        state = state_dump(self._snapshot)
        topology = self._topology()
        record_id = self._same(topology, state) or self._write(topology, state)
        DecisionRecord.objects.bulk_create(self._rows(record_id))
        return record_id

    def _topology(self) -> int:
        """The id of the topology's record. It is dumped once only, for as long as snapshots share it."""
        shared = self._snapshot.topology
        written = _written.get(self._cluster.id)
        if written and written[0] is shared and TopologyRecord.objects.filter(id=written[1]).exists():
            return written[1]
        data = topology_dump(shared)
        record, _ = TopologyRecord.objects.defer("data").get_or_create(
            cluster_id=self._cluster.id, digest=topology_digest(data), defaults={"data": data}
        )
        _written[self._cluster.id] = (shared, record.id)
        return record.id

    def _same(self, topology: int, state: bytes) -> int | None:
        """The cluster's newest record, when it holds the very same."""
        last = PassRecord.objects.filter(cluster=self._cluster.id).order_by("-id").first()
        if last is None or last.topology_id != topology or bytes(last.state) != state:
            return None
        return last.id if last.steps == self._steps else None

    def _write(self, topology: int, state: bytes) -> int:
        record = PassRecord.objects.create(
            cluster_id=self._cluster.id,
            topology_id=topology,
            pass_no=self._cluster.pass_no,
            at=self._now,
            state=state,
            steps=self._steps,
        )
        return record.id

    def _rows(self, record_id: int) -> list[DecisionRecord]:
        ids = {decision.run_id for decision in self._decisions}
        # A run may be removed while the pass judges it.
        there = set(Run.objects.filter(id__in=ids).values_list("id", flat=True)) if ids else set()
        return [
            DecisionRecord(
                run_id=decision.run_id,
                record_id=record_id,
                at=self._now,
                placed=decision.placed,
                step=decision.step,
                request=request_data(decision.request),
                digest=answer_digest(decision.answer),
            )
            for decision in self._decisions
            if decision.run_id in there
        ]


def _hold_data(hold: Hold) -> dict[str, Any]:
    return {
        "machine": hold.machine,
        "gpus": list(hold.gpus),
        "cpu_millicores": hold.cpu_millicores,
        "memory_bytes": hold.memory_bytes,
    }


def record_open(cluster: Cluster, snapshot: Snapshot, now: datetime) -> Recorder:
    """`snapshot`: as the pass loaded it, before its first step."""
    return Recorder(cluster, snapshot, now)


# --- Reading --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reserved:
    """Machines that the pass kept for a run."""

    run_id: int
    machines: frozenset[str]
    at: float | None
    """Epoch seconds, at the latest; None: not known."""


@dataclass(frozen=True, slots=True)
class Recalled:
    """A judgement, had again from what the pass saw."""

    snapshot: Snapshot
    """As the run found it: with what the pass had placed before, and without what others claim."""
    request: Request
    answer: Answer
    pass_no: int
    at: datetime
    reserved: tuple[Reserved, ...]
    """What the pass had reserved before it came to this run."""
    placed: bool = False
    """The run was placed so."""
    kept: Mapping[str, int] = field(default_factory=dict)
    """Pool → the run for which what quotas leave there is kept, where that made this one wait."""


def recall(run: Run) -> Recalled | None:
    """The last pass's judgement of a waiting run; None when no record of it is kept (yet, or any more)."""
    judged = run.judged
    record = _records().filter(id=judged["record"]).first() if judged else None
    if judged is None or record is None:
        return None
    topology, behind = _topology(record), set(judged["behind"])
    reserved = (each.machines for each in _reserved(record, judged["step"]) if each.run_id in behind)
    request = replace(
        request_of(
            run,
            stored_document(run.document),
            pools_allowed(run.workspace_id, run.cluster_id),
            _lemons(run, topology, record.at),
        ),
        over_cap=frozenset(judged["over_cap"]),
        guaranteed_to_others=frozenset(judged["guaranteed"]),
        reserved=frozenset().union(*reserved) - set(judged["claimed"]),
        occupied=frozenset(judged["occupied"]),
    )
    return replace(_recalled(record, judged["step"], run.id, request), kept=judged.get("kept", {}))


def _lemons(run: Run, topology: Topology, at: datetime) -> Lemons:
    tiers = lemon_tiers(run.cluster_id, at)
    if not tiers and not run.avoid_machines:
        return Lemons()
    return Lemons(dict(zip(topology.ids.tolist(), topology.names, strict=True)), tiers)


def recall_at(run: Run, time: datetime) -> Recalled | None:
    """The judgement that was in force then: the last one kept from before; None when there is none."""
    decision = decisions_of(run).filter(at__lte=time).order_by("-at", "-id").first()
    return recall_decision(decision) if decision else None


def recall_placed(run: Run) -> Recalled | None:
    """Why the run's newest attempt landed where it did."""
    decision = decisions_of(run).filter(placed=True).order_by("-id").first()
    return recall_decision(decision) if decision else None


def recall_decision(decision: DecisionRecord) -> Recalled:
    """The judgement anew. The digest of what was answered then is `decision.digest`."""
    request = request_of_data(decision.request)
    recalled = _recalled(decision.record, decision.step, decision.run_id, request)
    return replace(recalled, at=decision.at, placed=decision.placed)


def decisions_of(run: Run) -> QuerySet[DecisionRecord]:
    """The run's kept judgements, with what `recall_decision` needs."""
    return run.decisions.select_related("record__topology").defer("record__topology__data")


def _records() -> QuerySet[PassRecord]:
    """Without the topology's data, which is large and mostly in this process already."""
    return PassRecord.objects.select_related("topology").defer("topology__data")


def _recalled(record: PassRecord, step: int, run_id: int, request: Request) -> Recalled:
    snapshot = _after(snapshot_load(_topology(record), bytes(record.state)), record.steps[:step], run_id)
    return Recalled(
        snapshot=snapshot,
        request=request,
        answer=place(snapshot, request),
        pass_no=record.pass_no,
        at=record.at,
        reserved=_reserved(record, step),
    )


def _reserved(record: PassRecord, step: int) -> tuple[Reserved, ...]:
    made = [done["reserve"] for done in record.steps[:step] if "reserve" in done]
    return tuple(Reserved(each["run"], frozenset(each["machines"]), each["at"]) for each in made)


def _after(snapshot: Snapshot, steps: Iterable[Step], run_id: int) -> Snapshot:
    """What is left for this run after those steps of the pass."""
    taken: list[Hold] = []
    claims: dict[int, list[Hold]] = {}
    for step in steps:
        if "take" in step:
            taken += [hold_of_data(each) for each in step["take"]]
        elif "claim" in step:
            claims[step["claim"]["run"]] = [hold_of_data(each) for each in step["claim"]["holds"]]
    taken += [hold for claimed, holds in claims.items() if claimed != run_id for hold in holds]
    return snapshot.held(taken) if taken else snapshot


def _topology(record: PassRecord) -> Topology:
    """Read once in a while for each process: it is the same for weeks, and all records share it."""
    return _topology_read(record.topology.id, record.topology.digest)


@lru_cache(maxsize=TOPOLOGIES_KEPT)
def _topology_read(topology_id: int, digest: str) -> Topology:  # noqa: ARG001 - ids may be used again by a restored database
    return topology_load(bytes(TopologyRecord.objects.values_list("data", flat=True).get(id=topology_id)))
