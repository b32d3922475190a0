"""One judgement, looked at from all sides: causes, domains, machines, changes, when, quotas."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, partial
from typing import Any

from placement import Placement, Refusal, Request, words
from placement.phrases import plural
from placement.place import fits
from runs.explaining import changes, policy, queue, rows
from runs.explaining.alone import workers_alike
from runs.explaining.held import Held, held_in
from runs.explaining.history import stretch_words
from runs.explaining.rows import MachineRow
from runs.explaining.when import Asked, when_of
from runs.models import Run, RunWait
from runs.scheduling.records import Recalled
from runs.states import WaitKind

JSON = dict[str, Any]
Data = Mapping[str, Any]

CHOSEN = "Chosen"
"""Title of the machines on which the run was placed."""
FREE_NOW = "Free for it now"
"""Title of the machines on which it could be placed, of a run that waits all the same."""


@dataclass(frozen=True)
class View:
    """A judgement of a run, with what the database knows beside it. Everything is read when it is asked for."""

    run: Run
    recalled: Recalled
    now: datetime
    past: bool = False
    """`now` is the time of the judgement, not the reader's."""
    apart: int | None = None
    """Of a worker that would start on its own and is not stored: how many of its run are like it."""

    @cached_property
    def data(self) -> Data:
        return self.recalled.answer.as_data()

    @cached_property
    def held(self) -> Held:
        return held_in(self.run.cluster_id, self.now, past=self.past)

    @cached_property
    def pools(self) -> list[policy.PoolUse]:
        return policy.pools_of(
            self.run.workspace_id,
            self.run.cluster_id,
            self.recalled.snapshot,
            self.recalled.request,
            self.held,
            self.recalled.kept,
        )

    @property
    def gpus(self) -> int:
        return sum(group.gpus for group in self.recalled.request.groups)

    @cached_property
    def facts(self) -> rows.Facts:
        workspace, snapshot = self.run.workspace_id, self.recalled.snapshot
        signs = {} if self.past else rows.signs_of(snapshot, self._machines_with(rows.SIGNED))
        cordoned = self._machines_with({"cordoned"})
        return rows.Facts(
            held=rows.HeldWords(self.held, workspace, self.now),
            told={
                "cordoned": rows.cordons_of(snapshot.topology, cordoned, self.now),
                "reserved": rows.reserved_words(self.recalled.reserved, workspace, self.now),
                **signs,
            },
            pools=policy.pool_numbers(self.pools, self.run.workspace.slug),
        )

    def _machines_with(self, codes: AbstractSet[str]) -> set[str]:
        """Machines of which any of these codes tells."""
        told = self.data["groups"] if isinstance(self.recalled.answer, Placement) else [self.data]
        every = (row for part in told for row in part["rows"] if not codes.isdisjoint(row["codes"]))
        return {machine for row in every for machine in row["machines"]}

    @cached_property
    def asked(self) -> Asked:
        alike = workers_alike(self.run) if self.run.parent_id else self.apart
        return Asked(self.run, self.recalled, self.held, self.pools, self.now, alike)

    @property
    def policy(self) -> JSON:
        text = policy.policy_words(self.pools, self.run.workspace.slug, self.gpus)
        return {"text": text, "asked": self.gpus, "pools": [pool.as_data() for pool in self.pools]}

    def headline(self, stretch: RunWait | None) -> str:
        """One sentence for a judgement of the past."""
        if stretch is not None:
            return stretch_words(stretch, self.run)
        if isinstance(self.recalled.answer, Refusal):
            return words.headline(self.data)
        return f"There was room: {words.placement_sentence(self.data)}."


def worded(parts: Data) -> JSON:
    """The parts with each of their rows of machines in words, as programs read them."""
    return {**parts, "machines": [row.as_data() for row in parts["machines"]]}


def view_waiting(view: View) -> JSON:
    """Of a run that the pass left in the queue; its machines as `MachineRow`s."""
    in_queue = None if view.past else queue.queue_of(view.run, view.recalled, view.now)
    told: JSON = {
        "causes": causes_of(view, in_queue),
        "queue": in_queue,
        "policy": view.policy,
        **_machines(view),
    }
    if not view.past:
        told |= {"when": when_of(view.asked), **changes.changes_of(view.asked)}
    return told


def view_placed(view: View) -> JSON:
    """Of a run that the pass placed: where, and for each other machine why not there, as `MachineRow`s."""
    data = view.data
    return {
        "placement": {
            "text": words.placement_sentence(data),
            "verdict": data["verdict"],
            "network": words.verdict_words(data["verdict"]),
            "groups": [_group(group) for group in data["groups"]],
        },
        "policy": view.policy,
        **_machines(view),
    }


def _group(group: Data) -> JSON:
    kept = ("group", "verdict", "transport", "shape", "fabric", "rack", "nvlink_domain", "score")
    return {**{name: group[name] for name in kept}, "machines": group["chosen"]}


def causes_of(view: View, in_queue: JSON | None) -> list[JSON]:
    """Order, fit and policy, each by itself: whether it is in the way, and a sentence."""
    kind = view.run.wait_kind
    request = view.recalled.request
    causes = []
    if in_queue is not None:
        causes.append(
            {"kind": "order", "met": not request.reserved or kind != "order", "text": in_queue["text"]}
        )
    causes.append(_fit(view))
    closed = any(pool.closed for pool in view.pools)
    causes.append({"kind": "policy", "met": not closed, "text": view.policy["text"]})
    return causes


def _fit(view: View) -> JSON:
    recalled = view.recalled
    if not view.past and view.run.wait_kind == WaitKind.NEVER:
        text = "No set of machines of this cluster can hold it, even when all are free, healthy and ready."
        return {"kind": "fit", "met": False, "text": text}
    if isinstance(recalled.answer, Placement) or fits(recalled.snapshot, _open(recalled.request)):
        return {"kind": "fit", "met": True, "text": "A set of machines can hold it now."}
    return {"kind": "fit", "met": False, "text": "No set of machines can hold it now."}


def _open(request: Request) -> Request:
    """The request alone, without what order and policy close."""
    nothing: frozenset[str] = frozenset()
    return replace(request, over_cap=nothing, guaranteed_to_others=nothing, reserved=nothing)


def _machines(view: View) -> JSON:
    """Domains, and the machines in rows."""
    data, placed = view.data, isinstance(view.recalled.answer, Placement)
    if not placed:
        return {
            "domains": data["domains"],
            "domains_left_out": data["domains_left_out"],
            "machines": rows.rows_of(data["rows"], data["asked"], view.facts),
        }
    title = CHOSEN if view.recalled.placed else FREE_NOW
    told = []
    for group in data["groups"]:
        told += [_chosen(rank, title) for rank in group["ranks"]]
        told += rows.rows_of(group["rows"], group["asked"], view.facts, placed=True)
    return {"machines": _by_group(told, title)}


def _chosen(rank: Data, title: str) -> MachineRow:
    numbers = {"rank": rank["rank"], "gpus": rank["gpus"]}
    return MachineRow(title, [], numbers, [rank["machine"]], partial(_rank_words, rank))


def _rank_words(rank: Data) -> str:
    gpus = f" with {plural(len(rank['gpus']), 'GPU')}" if rank["gpus"] else ""
    return f"Rank {rank['rank']}{gpus}"


def _by_group(told: Iterable[MachineRow], first: str) -> list[MachineRow]:
    """Several groups of workers tell of the same machines: those chosen come first, titles stay together."""
    titles: dict[str, list[MachineRow]] = {first: []}
    for row in told:
        titles.setdefault(row.group, []).append(row)
    return [row for rows_ in titles.values() for row in rows_]
