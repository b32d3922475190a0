"""A run, a machine and their histories in words."""

from collections.abc import Sequence
from typing import Any

from astra.output import coloured, fields, get, parse_time, show_time, table, word
from astra.terminal import clean

_TIMES = (("Queued", "queued_at"), ("Placed", "placed_at"), ("Started", "started_at"), ("Ended", "ended_at"))


def run_description(run: Any) -> list[str]:
    status = get(run, "status")
    state = word(status, "state")
    lines = fields(
        [
            ("Run", word(run, "metadata", "name")),
            ("State", coloured(state, state)),
            ("Reason", word(status, "reason")),
            ("Cluster", word(status, "cluster")),
            ("Network", word(status, "network", "text")),
            ("Shape", shape_text(get(status, "shape"))),
            ("Attempt", _attempt_text(get(status, "attempt"), get(status, "restarts"))),
            *((label, show_time(get(status, name))) for label, name in _TIMES),
            ("Labels", labels_text(get(run, "metadata", "labels"))),
            ("Page", word(status, "url")),
        ]
    )
    workers = get(status, "workers")
    return lines + (["", *worker_lines(workers)] if isinstance(workers, list) and workers else [])


def _attempt_text(attempt: Any, restarts: Any) -> str:
    """Nothing before the first attempt."""
    counted = f", {clean(restarts)} restart{'' if restarts == 1 else 's'}" if restarts else ""
    return f"{clean(attempt)}{counted}" if attempt else ""


def worker_lines(workers: Sequence[Any]) -> list[str]:
    rows = [("WORKER", "STATE", "MACHINE", "GPUS", "REASON")]
    rows += [
        (
            word(worker, "name"),
            word(worker, "state"),
            word(worker, "machine") or "-",
            gpus_text(get(worker, "gpus")),
            word(worker, "reason"),
        )
        for worker in workers
    ]
    return table(rows, state_column=1)


def gpus_text(gpus: Any) -> str:
    """How many: the API names the GPUs that a worker holds."""
    return str(len(gpus)) if isinstance(gpus, list) and gpus else "-"


def shape_text(shape: Any) -> str:
    """`2 machines x 8 GPUs`, for each group."""
    groups = shape if isinstance(shape, list) else []
    return ", ".join(_group_text(get(group, "machines"), get(group, "gpus")) for group in groups)


def _group_text(machines: Any, gpus: Any) -> str:
    counted = f"{clean(machines)} machine{'' if machines == 1 else 's'}"
    return f"{counted} x {clean(gpus)} GPU{'' if gpus == 1 else 's'}" if gpus else counted


def labels_text(labels: Any) -> str:
    if not isinstance(labels, dict):
        return ""
    return ", ".join(f"{word({'k': key}, 'k')}={word(labels, key)}" for key in sorted(labels))


def event_lines(events: Sequence[Any]) -> list[str]:
    """Time, attempt, state, what happened."""
    rows = [("TIME", "ATTEMPT", "STATE", "WHAT")]
    rows += [
        (_clock(get(event, "at")), word(event, "attempt") or "-", word(event, "state"), word(event, "text"))
        for event in events
    ]
    return table(rows, state_column=2)


def metric_lines(series: Sequence[Any]) -> list[str]:
    """Of each series: how many samples, over which steps, first, last, lowest and highest value."""
    heads = ("NAME", "WORKER", "SAMPLES", "STEPS", "FIRST", "LAST", "LOW", "HIGH")
    return table([heads, *(_metric_row(each) for each in series)])


def _metric_row(series: Any) -> tuple[str, ...]:
    samples = get(series, "samples") or [{}]
    first, last = samples[0], samples[-1]
    return (
        word(series, "name"),
        word(series, "worker"),
        word(series, "count"),
        f"{word(first, 'step')}-{word(last, 'step')}",
        *(_value(get(*place)) for place in ((first, "value"), (last, "value"))),
        *(_value(get(series, place)) for place in ("low", "high")),
    )


def _value(number: Any) -> str:
    """Six digits, as on the run's page; what was NaN or infinite is `-`."""
    return f"{number:.6g}" if isinstance(number, int | float) else "-"


def _clock(value: Any) -> str:
    time = parse_time(value)
    return word({"at": value}, "at") if time is None else f"{time.astimezone():%Y-%m-%d %H:%M:%S}"


def token_lines(tokens: Sequence[Any]) -> list[str]:
    rows = [("ID", "NAME", "ROLE", "BY", "EXPIRES", "LAST USED", "")]
    rows += [
        (
            word(token, "id"),
            word(token, "name"),
            word(token, "role"),
            word(token, "user"),
            _clock(get(token, "expires_at")) or "never",
            _clock(get(token, "last_used_at")) or "never",
            "revoked" if get(token, "revoked_at") else "",
        )
        for token in tokens
    ]
    return table(rows)


# --- Machines -----------------------------------------------------------------------------------------


def machine_lines(machines: Sequence[Any]) -> list[str]:
    heads = ("NAME", "STATE", "POOL", "GPUS FREE", "MODEL", "FABRIC", "RACK", "REASON")
    rows = [heads, *(_machine_row(machine) for machine in machines)]
    return table(rows, [20, 13], state_column=1)


def _machine_row(machine: Any) -> tuple[str, str, str, str, str, str, str, str]:
    status = get(machine, "status")
    free, total = word(status, "gpus_free"), word(status, "gpus_total")
    return (
        word(machine, "metadata", "name"),
        word(status, "state"),
        word(machine, "spec", "pool") or word(status, "pool") or "-",
        f"{free} of {total}" if free and total else total or "-",
        word(status, "gpu_model") or "-",
        word(status, "fabric") or "-",
        word(status, "rack") or "-",
        word(status, "reason"),
    )


def machine_description(machine: Any) -> list[str]:
    status = get(machine, "status")
    name, state, pool, gpus, model, fabric, rack, reason = _machine_row(machine)
    badge = " (simulated)" if get(status, "simulated") is True else ""
    lines = fields(
        [
            ("Machine", name + badge),
            ("State", state),
            ("Reason", reason),
            ("Pool", pool),
            ("GPUs free", gpus),
            ("Model", model),
            ("Fabric", fabric),
            ("Rack", rack),
            ("NVLink domain", word(status, "nvlink_domain")),
            ("Address", word(status, "address")),
            ("Agent", word(status, "agent_version") + (" (old)" if get(status, "agent_old") is True else "")),
            ("Lemon score", _lemon(status)),
            ("Last seen", show_time(get(status, "last_seen_at"))),
            ("Labels", labels_text(get(machine, "metadata", "labels"))),
        ]
    )
    lines += _devices("GPUS", get(status, "gpus"), ("index", "health", "run", "worker", "evidence"))
    return lines + _devices(
        "PORTS", get(status, "rdma_ports"), ("device", "port", "link_layer", "state", "rate_gbps")
    )


def _lemon(status: Any) -> str:
    """Empty for a machine on which no run failed of late."""
    score = get(status, "lemon_score")
    if not isinstance(score, int | float) or not score:
        return ""
    failures = get(status, "failures")
    count = len(failures) if isinstance(failures, list) else 0
    return f"{score:g} ({count} run{'' if count == 1 else 's'} failed here)"


def _devices(title: str, devices: Any, names: Sequence[str]) -> list[str]:
    if not isinstance(devices, list) or not devices:
        return []
    rows = [tuple(word(device, name) or "-" for name in names) for device in devices]
    return ["", title, *table([tuple(name.upper().replace("_", " ") for name in names), *rows])]
