"""Machines in words: what the engine says of each, with what only the database knows of it."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np
from django.db.models import BigIntegerField, DurationField, ExpressionWrapper, F, Value
from django.db.models.functions import Cast, Extract, Floor

from common.among import among
from machines.models import Gpu, Machine
from machines.states import Health
from placement import Snapshot, words
from placement.arrays import Longs
from placement.snapshot import GPU_FAULTY, GPU_SUSPECT
from placement.topology import Topology
from runs.explaining.held import Held, Holder
from runs.explaining.moments import HELD_BY_OTHERS, moment_on, moment_words, today_of
from runs.models import Run
from runs.reasons import SOMEBODY_S_RUN
from runs.scheduling.records import Reserved
from wire.quantities import format_duration

Data = Mapping[str, Any]
Numbers = dict[str, Any]

NOT_CHOSEN = "Usable, not chosen"
"""Title of the machines that would have served as well, or less well, in an answer that places the run."""


_NOTHING: Numbers = {}
_QUOTAS = frozenset({"pool_cap", "pool_guaranteed"})
SIGNED = frozenset({"gpus_suspect", "gpus_faulty"})
"""Codes of machines of whose GPUs it is told what is wrong with them."""


@dataclass(frozen=True)
class Facts:
    """What is told of machines beyond the engine's numbers, as one workspace may see it.

    Equal numbers are one object.
    """

    held: "HeldWords"
    told: Mapping[str, Mapping[str, Numbers]]
    """By code, then machine: by whom it was cordoned, for which run it is reserved, what is wrong with its GPUs."""
    pools: Mapping[str, Numbers]
    """Pool → the workspace, its cap and what it uses, or for which run what is left is kept."""

    def of(self, machine: str, row: Data) -> Numbers:
        """Numbers to be joined to the row's, by code, for this machine."""
        joined: Numbers = {}
        for code in row["codes"]:
            if code in self.told:
                joined[code] = self.told[code].get(machine, _NOTHING)
            elif code in _QUOTAS:
                joined[code] = self.pools.get(row["numbers"][code]["pool"], _NOTHING)
        return joined


def _once(found: Mapping[str, Numbers]) -> dict[str, Numbers]:
    """The same, with equal numbers as one object: by that machines are told apart that are to share a row."""
    known: dict[tuple[tuple[str, Any], ...], Numbers] = {}
    return {name: known.setdefault(tuple(numbers.items()), numbers) for name, numbers in found.items()}


class HeldWords:
    """Who holds GPUs on a machine, worded for those machines that are asked about."""

    def __init__(self, held: Held, workspace: int, now: datetime) -> None:
        self._held, self._workspace, self._today = held, workspace, today_of(now)
        self._words: dict[tuple[int, ...], tuple[str, ...]] = {}

    def on(self, machine: str) -> tuple[str, ...]:
        """ "eval-3 (until 14:05 UTC at the latest)" for each run."""
        who = self._held.on.get(machine, ())
        told = self._words.get(who)
        if told is None:
            told = tuple(dict.fromkeys([self._worded(self._held.holders[number]) for number in who]))
            self._words[who] = told
        return told

    def _worded(self, holder: Holder) -> str:
        name = holder.name if holder.workspace_id == self._workspace else HELD_BY_OTHERS
        if holder.limit_at is None:
            return name
        return f"{name} (until {moment_on(self._today, holder.limit_at)} at the latest)"


def cordons_of(topology: Topology, machines: Collection[str], now: datetime) -> dict[str, Numbers]:
    """Of these machines: by whom, how long ago and why it takes no new work; a cordon of later is none."""
    names = dict(zip(topology.ids[_rows(topology, machines)].tolist(), machines, strict=True))
    cordoned = Machine.objects.filter(among("id", names), cordoned_at__lte=now).order_by()
    told = cordoned.values_list("id", _seconds_since("cordoned_at", now), "cordoned_by", "cordon_reason")
    return _once({names[key]: {"by": by, "ago": _ago(age), "why": why} for key, age, by, why in told})


def _rows(topology: Topology, machines: Collection[str]) -> Longs:
    """In their order."""
    return np.fromiter(map(topology.row_of.__getitem__, machines), np.int64, len(machines))


def _seconds_since(field: str, now: datetime) -> Cast:
    """Whole seconds: hundreds of them are read sooner than so many times."""
    age = ExpressionWrapper(Value(now) - F(field), output_field=DurationField())
    return Cast(Floor(Extract(age, "epoch")), BigIntegerField())


def _ago(seconds: int) -> str:
    """One unit is enough."""
    return " ".join(format_duration(seconds).split()[:2])


def signs_of(snapshot: Snapshot, machines: Collection[str]) -> dict[str, dict[str, Numbers]]:
    """By code, then machine, of these: the evidence against GPUs, as it is now, where the pass saw some."""
    names, rows = list(machines), _rows(snapshot.topology, machines)
    marked = (snapshot.gpu_state[rows] & (GPU_SUSPECT | GPU_FAULTY)) != 0
    gpus = snapshot.topology.gpu_id[rows][marked].tolist()
    owner = dict(zip(gpus, np.nonzero(marked)[0].tolist(), strict=True))
    sick = (
        Gpu.objects.filter(among("id", gpus), present=True)
        .exclude(health=Health.HEALTHY)
        .exclude(evidence="")
    )
    found: dict[str, dict[str, dict[str, None]]] = {code: {} for code in SIGNED}
    for gpu, health, evidence in sick.values_list("id", "health", "evidence"):
        code = "gpus_suspect" if health == Health.SUSPECT else "gpus_faulty"
        found[code].setdefault(names[owner[gpu]], {})[evidence] = None
    return {
        code: _once({name: {"signs": ", ".join(signs)} for name, signs in told.items()})
        for code, told in found.items()
    }


def reserved_words(reserved: Iterable[Reserved], workspace: int, now: datetime) -> dict[str, Numbers]:
    """Machine → the run that it is kept for and when that starts; of several the first in the queue."""
    made = list(reserved)
    runs = Run.objects.only("name", "workspace").in_bulk({each.run_id for each in made})
    found: dict[str, Numbers] = {}
    for each in made:
        run = runs.get(each.run_id)
        told: Numbers = {}
        if run is not None:
            told["run"] = run.name if run.workspace_id == workspace else SOMEBODY_S_RUN
        if each.at is not None:
            told["at"] = moment_words(datetime.fromtimestamp(each.at, UTC), now)
        for machine in each.machines:
            found.setdefault(machine, told)
    return _once(found)


@dataclass(slots=True)
class MachineRow:
    """Machines about which the same is to be said; `sentence` says it, when it is asked for: a page shows few rows."""

    group: str
    """The title above it."""
    codes: list[str]
    """Of the rules that refuse them, the main one first."""
    numbers: Numbers
    """By code."""
    machines: list[str]
    sentence: Callable[[], str]
    _text: str | None = field(default=None, init=False)

    @property
    def text(self) -> str:
        if self._text is None:
            self._text = self.sentence()
        return self._text

    def as_data(self) -> dict[str, Any]:
        """As programs read it."""
        return {
            "group": self.group,
            "codes": self.codes,
            "numbers": self.numbers,
            "machines": self.machines,
            "text": self.text,
        }


def rows_of(rows: Iterable[Data], asked: Data, facts: Facts, *, placed: bool = False) -> list[MachineRow]:
    """The machines, nearest first; those about which the same is to be said share a row."""
    found = []
    for row in rows:
        codes = row["codes"]
        for machines, joined, holders in _alike(row, facts):
            numbers = row["numbers"]
            if joined:
                numbers = {code: {**own, **joined.get(code, {})} for code, own in numbers.items()}
            full = {"codes": codes, "numbers": numbers, "machines": machines}
            sentence = partial(words.machine_sentence, full, asked, holders)
            title = _title(codes, numbers, placed=placed)
            found.append(MachineRow(title, codes, numbers, machines, sentence))
    return found


def _title(codes: list[str], numbers: Numbers, *, placed: bool) -> str:
    if placed and not codes:
        return NOT_CHOSEN
    if codes and "kept" in numbers[codes[0]]:
        return words.QUOTA_KEPT
    return words.GROUP_TITLES[codes[0] if codes else ""]


_Part = tuple[list[str], Numbers, tuple[str, ...]]


def _alike(row: Data, facts: Facts) -> Iterable[_Part]:
    """The row's machines, divided by what the facts say of them."""
    codes, machines = row["codes"], row["machines"]
    busy = "gpus_busy" in codes
    if not (_QUOTAS.isdisjoint(codes) and facts.told.keys().isdisjoint(codes)):
        return _joined(row, facts, busy=busy)
    if not busy:
        return [(list(machines), {}, ())]
    divided: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for machine in machines:
        divided[facts.held.on(machine)].append(machine)
    return [(alike, {}, holders) for holders, alike in divided.items()]


def _joined(row: Data, facts: Facts, *, busy: bool) -> Iterable[_Part]:
    divided: dict[Any, _Part] = {}
    for machine in row["machines"]:
        joined = facts.of(machine, row)
        holders = facts.held.on(machine) if busy else ()
        # Equal numbers are one object, which the facts hold on to.
        key = (holders, *map(id, joined.values()))
        if key in divided:
            divided[key][0].append(machine)
        else:
            divided[key] = ([machine], joined, holders)
    return divided.values()
