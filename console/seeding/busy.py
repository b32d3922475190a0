"""Runs that hold machines now, and runs that have ended."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import count
from random import Random

from django.db.models import Max

from console.seeding.asking import Ask
from console.seeding.fleet import Stand
from console.seeding.people import House
from console.seeding.works import Place, Reason, Work, works_store
from console.seeding.zones import GPUS, ZONES, Zone
from machines.states import MachineState
from runs.models import Run
from runs.states import RunState

HELD_WHOLE, HELD_PARTLY = 0.74, 0.10
"""Shares of the machines on which every GPU is held, and on which some are."""
GANGS = (1, 1, 2, 2, 4, 8, 16)
"""Machines of runs that hold whole ones."""
STORIES = ("llm", "vit-l", "sft", "dpo", "asr-ctc", "clip", "unet", "eval", "tune", "retrieval", "ocr", "tts")
PROJECTS = ("foundation", "perception", "speech-2", "fabric-check")
STATES = (*[RunState.RUNNING] * 18, RunState.STARTING, RunState.STOPPING)
ENDINGS = (*[RunState.SUCCEEDED] * 13, *[RunState.FAILED] * 4, *[RunState.STOPPED] * 3)
FINISHED_AT_ONCE = 10_000


class Names:
    """A name of its own for every run, whatever other scenes have taken."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._numbers = count(1 + (Run.objects.aggregate(last=Max("id"))["last"] or 0))

    def take(self) -> str:
        return f"{self._random.choice(STORIES)}-{next(self._numbers)}"


def busy_make(house: House, stands: Sequence[Stand], names: Names, random: Random, now: datetime) -> int:
    """Runs on most of the machines; how many."""
    works = [
        _live(house, ask, stands_of, names.take(), random, now)
        for zone in ZONES
        for ask, stands_of in _occupy(zone, [stand for stand in stands if stand.zone == zone], random)
    ]
    works_store(works)
    return len(works)


def _occupy(zone: Zone, stands: Sequence[Stand], random: Random) -> Iterator[tuple[Ask, list[Stand]]]:
    """Gangs of whole machines side by side, small runs, and free machines between them."""
    gang: list[Stand] = []
    size = random.choice(GANGS)
    for stand in stands:
        if stand.machine.state in {
            MachineState.UNREACHABLE,
            MachineState.QUARANTINED,
            MachineState.CONTESTED,
        }:
            continue
        drawn = random.random()
        if drawn < HELD_WHOLE and len(stand.sound) == GPUS:
            gang.append(stand)
        elif drawn < HELD_WHOLE + HELD_PARTLY:
            yield _ask(zone, 1, random.choice((1, 2, 4)), random), [stand]
        if len(gang) == size:
            yield _ask(zone, size, GPUS, random), gang
            gang, size = [], random.choice(GANGS)
    if gang:
        yield _ask(zone, len(gang), GPUS, random), gang


def _ask(zone: Zone, machines: int, gpus: int, random: Random) -> Ask:
    together = machines > 1 and bool(zone.fabric)
    return Ask(
        machines,
        gpus,
        zone.model,
        keep_within="fabric" if together else "",
        infiniband=together,
        limit_hours=random.choice((None, 8, 24, 72)),
        healthy_only=False,
    )


def _live(house: House, ask: Ask, stands: Sequence[Stand], name: str, random: Random, now: datetime) -> Work:
    state = random.choice(STATES)
    queued = now - timedelta(minutes=random.uniform(6, 60 * min(ask.limit_hours or 7, 7)))
    if state == RunState.STARTING:
        queued = now - timedelta(minutes=random.uniform(1, 6))
    places = [_place(stand, ask.gpus) for stand in stands]
    started = None if state == RunState.STARTING else queued + timedelta(seconds=random.uniform(45, 300))
    run = _run(house, ask, name, state, random, queued_at=queued)
    run.placed_at, run.started_at, run.attempt_no = (
        queued + timedelta(seconds=random.uniform(2, 40)),
        started,
        1,
    )
    run.reason = _reason(state, ask, run, places)
    return Work(run, ask, places, *_network(ask, stands))


def _place(stand: Stand, gpus: int) -> Place:
    """Takes GPUs of the machine, sound ones that nobody has."""
    taken = [gpu for gpu in stand.sound if gpu.index not in stand.held][:gpus]
    stand.held.update(gpu.index for gpu in taken)
    return stand.machine, taken


def _network(ask: Ask, stands: Sequence[Stand]) -> tuple[str, str]:
    """Verdict and fabric."""
    fabric = stands[0].zone.fabric
    if ask.machines == 1:
        return "one_machine", fabric
    return ("ib_fabric", fabric) if fabric else ("ethernet", "")


def _reason(state: RunState, ask: Ask, run: Run, places: Sequence[Place]) -> Reason:
    workers = ask.machines
    match state:
        case RunState.STARTING:
            return {"code": "starting", "ready": workers - 1, "workers": workers}
        case RunState.STOPPING:
            return {"code": "stopping", "ended": 0, "workers": workers}
        case RunState.SUCCEEDED:
            return {"code": "succeeded", "workers": workers}
        case RunState.STOPPED:
            return {"code": "stopped", "by": run.created_by.username if run.created_by else ""}
        case RunState.FAILED:
            worker, machine = f"{run.name}-{workers - 1}", places[-1][0].name
            return {
                "code": "failed",
                "worker": worker,
                "machine": machine,
                "exit": {"kind": "exited", "code": 1},
            }
    return {"code": "running", "running": workers, "workers": workers}


def _run(house: House, ask: Ask, name: str, state: RunState, random: Random, *, queued_at: datetime) -> Run:
    labels = {"project": random.choice(PROJECTS)}
    return Run(
        workspace=random.choices(house.workspaces, (5, 3, 2))[0],
        cluster=house.cluster,
        name=name,
        labels=labels,
        document=ask.document(name, labels),
        created_by=random.choice(house.people),
        state=state,
        priority=ask.priority,
        created_at=queued_at,
        queued_at=queued_at,
    )


def finished_make(
    house: House, stands: Sequence[Stand], amount: int, names: Names, random: Random, now: datetime
) -> Iterator[int]:
    """So many runs that have ended, the newest last; yields after each part how many there are so far."""
    machines = {zone: [stand for stand in stands if stand.zone == zone] for zone in ZONES}
    zones = [zone for zone in ZONES if machines[zone]]
    for start in range(0, amount, FINISHED_AT_ONCE):
        some = range(start, min(start + FINISHED_AT_ONCE, amount))
        works_store(
            [
                _finished(
                    house, random.choice(zones), machines, names.take(), random, now - _ago(number, amount)
                )
                for number in some
            ]
        )
        yield some.stop


def _ago(number: int, amount: int) -> timedelta:
    """Ends are spread over half a year; the newest ended an hour ago."""
    return timedelta(hours=8 + 4300 * (amount - number) / max(amount, 1))


def _finished(
    house: House, zone: Zone, stands: dict[Zone, list[Stand]], name: str, random: Random, queued: datetime
) -> Work:
    machines = min(random.choice((1, 1, 1, 2, 4)), len(stands[zone]))
    ask = _ask(zone, machines, GPUS if machines > 1 else random.choice((1, 2, 4, 8)), random)
    first = random.randrange(len(stands[zone]) - machines + 1)
    there = stands[zone][first : first + machines]
    places = [(stand.machine, stand.gpus[: ask.gpus]) for stand in there]
    state = random.choice(ENDINGS)
    run = _run(house, ask, name, state, random, queued_at=queued)
    run.placed_at = queued + timedelta(minutes=random.expovariate(0.2))
    run.started_at = run.placed_at + timedelta(seconds=random.uniform(20, 90))
    run.ended_at = run.started_at + timedelta(minutes=random.uniform(3, 300))
    run.attempt_no = 1
    run.reason = _reason(state, ask, run, places)
    return Work(run, ask, places, *_network(ask, there))
