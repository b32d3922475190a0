"""What a pass says about the runs that wait: written at its end, in a few statements however many they are."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db import connection, transaction

from common.nudge import publish_on_commit
from machines.models import Cluster
from placement import Placement, Refusal
from placement.policy import Job, Patient, Placed, Refused, Reserved, pools_of
from runs.events import LIVE_CHANNEL, run_announce
from runs.models import Reservation, Run, RunWait
from runs.scheduling.ports import NoPort
from runs.scheduling.records import Recorder
from runs.states import RunState, WaitKind

Data = dict[str, Any]

_WAITING: Data = {"code": "waiting"}


@dataclass(frozen=True, slots=True)
class Note:
    """One run's judgement, in the columns of `Run`."""

    run: Run
    position: int | None
    """From 1; None: it is not in the order, and noted after all that are."""
    kind: WaitKind
    cause: str
    reason: Data
    explanation: Data | None
    judged: Data | None
    """Less the record's id, which is known at the pass's end. None: the engine was not asked."""
    patient: bool = False


class Notes:
    """Collects the notes of one pass."""

    def __init__(
        self, cluster: Cluster, runs: Mapping[int, Run], names: Mapping[int, str], now: datetime
    ) -> None:
        """`names`: machine id → name."""
        self.cluster = cluster
        self.runs = runs
        self.now = now
        self._names = names
        self._notes: list[Note] = []
        waits = RunWait.objects.filter(run__in=runs, until=None)
        self._open_waits = {wait.run_id: wait for wait in waits.defer("headline")}

    def waits(self, job: Job, decision: Patient | Refused, record: Recorder) -> None:
        """The run waits on: for a better network, or because it was refused."""
        if isinstance(decision, Patient):
            reason = {
                "code": "patience",
                "now": decision.found.verdict.code,
                "better": decision.better.verdict.code,
                "seconds": 60 * math.ceil((decision.until - self.now.timestamp()) / 60),
            }
            self._add(job, decision, record, WaitKind.FIT, "patience", reason, answer=decision.found)
            return
        kind, cause = WaitKind(decision.kind), _cause(decision)
        told = decision.impossible.refusal if decision.impossible else decision.refusal
        explanation = {**told.as_headline(), "wait": self._wait(decision, cause)}
        self._add(job, decision, record, kind, cause, _WAITING, explanation, answer=decision.refusal)

    def no_port(self, job: Job, decision: Placed, missing: NoPort, record: Recorder) -> None:
        """It fits, but its leader's machine has no rendezvous port for it."""
        reason = {"code": "no_port", "machine": missing.machine, "port": missing.port}
        self._add(job, decision, record, WaitKind.FIT, "no_port", reason, answer=decision.placement)

    def lacks(self, run: Run, reason: Data) -> None:
        """It names something that its workspace no longer has, and takes no part in the pass."""
        note = Note(run, None, WaitKind.POLICY, reason["code"], reason, explanation=None, judged=None)
        self._notes.append(note)

    def _wait(self, decision: Refused, cause: str) -> Data:
        """What `runs/reasons.py` needs beside the engine's words, by kind of cause."""
        wait: Data = {"kind": decision.kind, "cause": cause}
        if decision.kind == "order":
            wait["behind"] = [self._named(key) for key in decision.behind]
        if decision.kind == "policy":
            wait["closed"] = _closed(decision)
        if decision.impossible:
            wait["changes"] = decision.impossible.changes_data()
        return wait

    def _named(self, key: int) -> Data:
        run = self.runs[key]
        return {"run": run.name, "workspace": run.workspace_id}

    def _add(
        self,
        job: Job,
        decision: Placed | Patient | Refused,
        record: Recorder,
        kind: WaitKind,
        cause: str,
        reason: Data,
        explanation: Data | None = None,
        *,
        answer: Placement | Refusal,
    ) -> None:
        judged = {
            "step": record.step,
            "over_cap": sorted(decision.request.over_cap),
            "guaranteed": sorted(decision.request.guaranteed_to_others),
            "behind": list(decision.behind),
            "claimed": sorted({hold.machine for hold in job.claims}),
            "occupied": sorted(decision.request.occupied),
            "kept": dict(decision.quota_kept) if isinstance(decision, Refused) else {},
        }
        run, position = self.runs[job.key], len(self._notes) + 1
        patient = isinstance(decision, Patient)
        note = Note(run, position, kind, cause, reason, explanation, judged, patient)
        self._notes.append(note)
        if self._wait_moved(note):
            record.decision(job.key, decision.request, answer, placed=False)

    # --- Writing --------------------------------------------------------------------------------------

    @transaction.atomic
    def write(self, record: Recorder, reserved: tuple[Reserved, ...]) -> None:
        """Everything at once. A run that has left the queue meanwhile is left alone."""
        record_id = record.close()
        # In the order in which all lock several runs: of an independent run all children are locked at once.
        locked = Run.objects.select_for_update(no_key=True).filter(
            id__in=[note.run.id for note in self._notes]
        )
        list(locked.order_by("id").values_list("id", flat=True))
        changed = [note for note in self._notes if self._is_new(note)]
        self._write_judged(record_id)
        self._write_changed(changed)
        self._write_waits()
        self._write_reservations(reserved)
        _announce([note.run for note in changed])

    def _is_new(self, note: Note) -> bool:
        run = note.run
        known = (run.explanation, run.reason, run.wait_kind, run.set_aside)
        return known != (note.explanation, note.reason, note.kind, "")

    def _write_judged(self, record_id: int) -> None:
        """Position, age and record of every judgement; one statement."""
        if not self._notes:
            return
        with connection.cursor() as cursor:
            cursor.execute(
                """
                UPDATE runs_run SET queue_position = said.position, judged = said.judged::jsonb,
                    explained_pass = %s, explained_at = %s
                FROM unnest(%s::bigint[], %s::int[], %s::text[]) AS said (id, position, judged)
                WHERE runs_run.id = said.id AND state = %s
                """,
                [
                    self.cluster.pass_no,
                    self.now,
                    [note.run.id for note in self._notes],
                    [note.position for note in self._notes],
                    [
                        json.dumps({"record": record_id, **note.judged}) if note.judged else None
                        for note in self._notes
                    ],
                    RunState.PENDING,
                ],
            )

    def _write_changed(self, notes: list[Note]) -> None:
        """What is said of those of which something else is said than last time; one statement."""
        if not notes:
            return
        with connection.cursor() as cursor:
            cursor.execute(
                """
                UPDATE runs_run SET wait_kind = said.kind, reason = said.reason::jsonb,
                    explanation = said.explanation::jsonb, set_aside = '',
                    patient_since = CASE WHEN said.patient THEN coalesce(patient_since, %s) ELSE patient_since END
                FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::text[], %s::bool[])
                    AS said (id, kind, reason, explanation, patient)
                WHERE runs_run.id = said.id AND state = %s
                """,
                [
                    self.now,
                    [note.run.id for note in notes],
                    [note.kind.value for note in notes],
                    [json.dumps(note.reason) for note in notes],
                    [json.dumps(note.explanation) if note.explanation else None for note in notes],
                    [note.patient for note in notes],
                    RunState.PENDING,
                ],
            )

    def _write_waits(self) -> None:
        """Ends the stretches whose cause has changed and begins new ones."""
        moved = [note for note in self._notes if self._wait_moved(note)]
        if not moved:
            return
        there = set(
            Run.objects.waiting().filter(id__in=[n.run.id for n in moved]).values_list("id", flat=True)
        )
        RunWait.objects.filter(run__in=[n.run.id for n in moved], until=None).update(until=self.now)
        RunWait.objects.bulk_create(
            RunWait(
                run_id=note.run.id,
                kind=note.kind,
                cause=note.cause,
                headline=note.explanation or note.reason,
                since=self.now,
            )
            for note in moved
            if note.run.id in there
        )

    def _wait_moved(self, note: Note) -> bool:
        known = self._open_waits.get(note.run.id)
        return known is None or (known.kind, known.cause) != (note.kind, note.cause)

    def _write_reservations(self, reserved: tuple[Reserved, ...]) -> None:
        known = {each.run_id: each for each in Reservation.objects.filter(cluster=self.cluster)}
        ids = {name: machine for machine, name in self._names.items()} if reserved else {}
        rows = [self._reservation(each, ids) for each in reserved]
        Reservation.objects.filter(run__in=known.keys() - {row.run_id for row in rows}).delete()
        Reservation.objects.bulk_create(
            rows,
            update_conflicts=True,
            unique_fields=["run"],
            update_fields=["machines", "starts_at", "waits_for", "pass_no"],
        )

    def _reservation(self, reserved: Reserved, ids: Mapping[str, int]) -> Reservation:
        return Reservation(
            run_id=reserved.key,
            cluster=self.cluster,
            machines=sorted(ids[name] for name in reserved.machines),
            starts_at=None if reserved.at is None else datetime.fromtimestamp(reserved.at, UTC),
            waits_for=list(reserved.waits_for),
            pass_no=self.cluster.pass_no,
        )


def _closed(decision: Refused) -> Data:
    """By the code of a rule, the pools of its own that it closes to the run."""
    request = decision.request
    own = pools_of(request, decision.refusal.outcome.ask.topology)
    closed = {"pool_cap": request.over_cap & own, "pool_guaranteed": request.guaranteed_to_others & own}
    return {code: sorted(pools) for code, pools in closed.items() if pools}


def _cause(decision: Refused) -> str:
    """The code that a run's history groups its wait by."""
    if decision.making_room or decision.preemption:
        return "making_room"
    if decision.kind == "order":
        return "quota_kept" if decision.quota_kept else "reserved"
    if decision.kind == "policy":
        return "pool_cap" if decision.request.over_cap else "pool_guaranteed"
    return "impossible" if decision.kind == "never" else decision.refusal.cause.code


def _announce(runs: list[Run]) -> None:
    """Pages that show these runs, or their workspaces' runs, read again."""
    channels = [f"run:{each}" for each in {run.shown_id for run in runs}] + [
        f"workspace:{each}" for each in {r.workspace_id for r in runs}
    ]
    if channels:
        publish_on_commit(LIVE_CHANNEL, ",".join(channels))


def set_aside(run: Run, error: Exception) -> None:
    """A run that could not be judged waits on, with the error for administrators."""
    text = f"{type(error).__name__}: {error}"[:2000]
    Run.objects.filter(id=run.id, state=RunState.PENDING).update(set_aside=text, reason={"code": "set_aside"})
    run_announce(run)
