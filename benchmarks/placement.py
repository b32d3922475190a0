"""`./dev bench placement`: the figures of the engine, the pass and the snapshot on 10,000 machines of 8 GPUs.

The fleet (`_fleet.py`) is 90 % busy and drawn from a fixed seed; so are the requests (`_requests.py`), each of which
asks for something of every rule. Figures are medians, in milliseconds.

**Warm**, as in a console that has been up for a minute: code is loaded; the topology's groupings are made; what the
rules say from hardware alone is remembered for the models, port speeds and amounts that occur; `pass_1000` has
judged its runs before and knows that each is possible at all. **Not warm**: `place` and the explanation are asked no
request twice, and no two calls of `place` see the same snapshot, so no answer about what is free can have been kept.

`--pure` leaves out the figure that needs PostgreSQL; `python -m benchmarks.placement --pure` starts no service at all.
`--quick` measures each figure a few times only.
"""

import argparse
import gc
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks._explain import explain_ms
from benchmarks._fleet import STORAGE_FABRIC, Fleet, fleet_of
from benchmarks._measure import floor_ms, mib, place_ms
from benchmarks._pass import pass_ms
from benchmarks._requests import Requests
from placement import Request, Snapshot, build_snapshot

MACHINES, FEWER = 10_000, 1_000
TARGETS = {
    "place_2x8_ms": 0.5,
    "place_64x8_ms": 1.0,
    "explain_ms": 50.0,
    "pass_1000_ms": 600.0,
    "refresh_100_ms": 10.0,
    "snapshot_mib": 32.0,
    "place_2x8_per_floor": 12.0,
    "growth": 10.0,
}
"""At most."""


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="./dev bench placement", description="The engine, the pass and the snapshot on 10,000 machines."
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--pure", action="store_true", help="only what needs no PostgreSQL")
    options = parser.parse_args(argv)
    fleet = fleet_of(MACHINES)
    figures = _pure(fleet, quick=options.quick)
    if not options.pure:
        from benchmarks._refresh import refresh_ms

        figures["refresh_100_ms"] = refresh_ms(fleet, rounds=5 if options.quick else 25)
    told = {name: round(value, 4) for name, value in figures.items()}
    print(json.dumps(told) if options.json else _table(told))
    return 0


def _pure(fleet: Fleet, *, quick: bool) -> dict[str, Any]:
    few, many = (20, 40) if quick else (150, 300)
    snapshot, smaller = _snapshot(fleet), fleet_of(FEWER)
    gc.collect()
    gc.freeze()  # collections that walk through the benchmark's own 90,000 facts are not the engine's
    place_2x8 = place_ms(snapshot, _gangs(fleet, 2), many, stay=8)
    floor = floor_ms(snapshot)
    fewer_2x8 = place_ms(_snapshot(smaller), _gangs(smaller, 2), many, stay=8)
    return {
        "machines": MACHINES,
        "place_2x8_ms": place_2x8,
        "place_64x8_ms": place_ms(snapshot, _gangs(fleet, 64), few, stay=0),
        "explain_ms": explain_ms(snapshot, fleet, rounds=3 if quick else 15),
        "pass_1000_ms": pass_ms(snapshot, fleet, rounds=1 if quick else 5),
        "snapshot_mib": mib(snapshot),
        "place_2x8_1000_ms": fewer_2x8,
        "floor_ms": floor,
        "place_2x8_per_floor": place_2x8 / floor,
        "growth": place_2x8 / fewer_2x8,
    }


def _snapshot(fleet: Fleet) -> Snapshot:
    return build_snapshot(fleet.machines, storage_fabrics=[STORAGE_FABRIC])


def _gangs(fleet: Fleet, machines: int) -> Iterator[Request]:
    requests = Requests(fleet, seed=machines)
    while True:
        yield requests.gang(machines)


def _table(figures: dict[str, Any]) -> str:
    lines = [f"{figures['machines']:,} machines of 8 GPUs, 90 % busy; medians", ""]
    lines.append(f"{'':22}{'measured':>10}{'at most':>10}")
    for name, value in figures.items():
        if name != "machines":
            target = f"{TARGETS[name]:g}" if name in TARGETS else ""
            lines.append(f"{name:22}{value:>10.3f}{target:>10}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
