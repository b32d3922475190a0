"""What a document may not say although each of its fields is right by itself."""

from collections.abc import Iterator
from typing import Any, Final

from wire.environment import MAX_PORT, parse_port
from wire.names import MAX_DNS_LABEL, shown, worker_name
from wire.quantities import format_duration, format_size
from wire.spec.errors import Location, format_path
from wire.spec.resource_rules import RESOURCE_RULES, Request
from wire.spec.task import MAX_CONFIG_BYTES
from wire.spec.tree import Problem
from wire.spec.view import Node, Rule, Unknown, apply

MAX_INDEPENDENT: Final = 1_000
"""Workers of one run that start on their own."""


def broken_rules(data: Any, broken: frozenset[Location]) -> Iterator[Problem]:
    """Findings about everything in `data` that is not broken itself."""
    if isinstance(data, dict):
        yield from apply((_document,), Node(data, (), broken))


def _document(document: Node) -> Iterator[Problem]:
    spec = document.node("spec")
    yield from apply(_SPEC_RULES, spec)
    for template in templates(spec):
        yield from apply(_TEMPLATE_RULES, template)
    yield from apply((_short_worker_names,), document)


def templates(spec: Node) -> Iterator[Node]:
    """Every `task_template` that can be looked at."""
    for holder in (spec, *_groups(spec)):
        try:
            if holder.has("task_template"):
                yield holder.node("task_template")
        except Unknown:
            continue


def _groups(spec: Node) -> list[Node]:
    try:
        return spec.nodes("worker_groups")
    except Unknown:
        return []


def _one_way_of_templates(spec: Node) -> Iterator[Problem]:
    if not spec.has("task_template", "worker_groups"):
        yield Problem(
            spec.at("task_template"), "missing", "`task_template` is missing. It says what the workers run."
        )
    if spec.has("task_template") and spec.has("worker_groups"):
        yield Problem(
            spec.at("worker_groups"),
            "both_templates",
            "Give either `task_template` (one group of workers) or `worker_groups` (several), not both.",
        )


def _different_group_names(spec: Node) -> Iterator[Problem]:
    seen = set()
    for group in _groups(spec):
        name = group.value("name")
        if name in seen:
            yield Problem(
                group.at("name"), "duplicate_name", f"Another group is called {shown(name)}. Rename one."
            )
        seen.add(name)


def _gang_restarts_together(spec: Node) -> Iterator[Problem]:
    if spec.value("on_failure") != "RestartTask" or spec.value("start", "Gang") != "Gang":
        return
    if sum(_most_workers(template) for template in templates(spec)) > 1:
        yield Problem(
            spec.at("on_failure"),
            "restart_task_in_gang",
            "`RestartTask` restarts one worker alone, which a gang of several workers can't do. "
            "Use `RestartJob`, or `start`: `Independent`.",
        )


def _few_independent(spec: Node) -> Iterator[Problem]:
    """Each is a run of its own to the scheduler."""
    if spec.value("start", "Gang") != "Independent":
        return
    workers = sum(_most_workers(template) for template in templates(spec))
    if workers > MAX_INDEPENDENT:
        yield Problem(
            spec.at("start"),
            "too_many_independent",
            f"This run can have {workers:,} workers; at most {MAX_INDEPENDENT:,} of one run start on their own. "
            "Ask for fewer `machines`, or submit several runs.",
        )


def _no_spread_of_independent(spec: Node) -> Iterator[Problem]:
    if spec.value("start", "Gang") != "Independent":
        return
    for template in templates(spec):
        topology = template.node("requested_resources").node("topology")
        if topology.value("spread") in {"rack", "fabric"}:
            yield Problem(
                topology.at("spread"),
                "spread_of_independent",
                "Workers that start on their own are always on different machines, but in no other way apart. "
                "Leave out `spread`, or use `start`: `Gang`.",
            )


def _most_workers(template: Node) -> int:
    """Raises Unknown when the request is broken or has no shape, which other errors say."""
    request = Request.of(template.node("requested_resources"))
    least = template.node("requested_resources").node("gpu_requests").value("min_per_machine", 1)
    shapes = () if request.is_contradictory else request.shapes(least)
    if not shapes:
        raise Unknown
    return shapes[-1].machines


def _short_worker_names(document: Node) -> Iterator[Problem]:
    run = document.node("metadata").value("name")
    for group in _groups(document.node("spec")):
        name = worker_name(run, group.value("name"), _most_workers(group.node("task_template")) - 1)
        if len(name) > MAX_DNS_LABEL:
            yield Problem(
                group.at("name"),
                "worker_name_too_long",
                f"The worker {shown(name, limit=100)} would have a name of {len(name)} characters; "
                f"{MAX_DNS_LABEL} are "
                f"allowed. Shorten the run's or the group's name by {len(name) - MAX_DNS_LABEL}.",
            )


def _small_configs(spec: Node) -> Iterator[Problem]:
    size, last = 0, spec.location
    for template in templates(spec):
        for config in template.nodes("configs"):
            size += len(config.value("value").encode())
            last = template.at("configs")
    if size > MAX_CONFIG_BYTES:
        yield Problem(
            last,
            "configs_too_large",
            f"The files are {size:,} bytes together; at most {format_size(MAX_CONFIG_BYTES)} a run is "
            f"allowed. "
            "Put large files on a drive or into the image.",
        )


def _different_mounts(template: Node) -> Iterator[Problem]:
    first: dict[str, Location] = {}
    for path, place, _ in _mounts(template):
        if path in first:
            yield Problem(
                place,
                "duplicate_mount",
                f"{shown(path)} is used twice; first in {format_path(first[path])}. Change one.",
            )
        first.setdefault(path, place)


def _nothing_below_files(template: Node) -> Iterator[Problem]:
    mounts = list(_mounts(template))
    files = {path for path, _, is_file in mounts if is_file}
    lengths = sorted({len(path) for path in files})
    for path, place, _ in mounts:
        parents = (path[:length] for length in lengths if path[length : length + 1] == "/")
        if inside := next((parent for parent in parents if parent in files), None):
            yield Problem(
                place,
                "mount_below_file",
                f"{shown(path)} lies below {shown(inside)}, which is a file. Change one.",
            )


def _mounts(template: Node) -> Iterator[tuple[str, Location, bool]]:
    """(path, place, whether a file stands there) of all sound mounts, in the document's order."""
    for name, is_file in (("configs", True), ("datavolume_refs", False), ("secret_refs", True)):
        for holder in _sound_nodes(template, name):
            if name == "configs":
                for index, path in _sound_items(holder, "mounts"):
                    yield path, holder.at("mounts", index), is_file
            elif holder.has("mount_path") and holder.at("mount_path") not in holder.broken:
                yield holder.value("mount_path"), holder.at("mount_path"), is_file


def _sound_nodes(node: Node, key: str) -> list[Node]:
    return [] if node.at(key) in node.broken else node.nodes(key)


def _sound_items(node: Node, key: str) -> list[tuple[int, Any]]:
    return [] if node.at(key) in node.broken else node.items(key)


def _one_target_of_secrets(template: Node) -> Iterator[Problem]:
    for secret in template.nodes("secret_refs"):
        if secret.has("env") == secret.has("mount_path"):
            yield Problem(
                secret.location,
                "secret_target",
                "Give exactly one of `env` (a variable) and `mount_path` (a file).",
            )


def _different_variables(template: Node) -> Iterator[Problem]:
    taken = set(template.value("env", {}))
    for secret in template.nodes("secret_refs"):
        name = secret.value("env")
        if name in taken:
            yield Problem(
                secret.at("env"),
                "duplicate_variable",
                f"The variable {shown(name)} is set twice. Remove one.",
            )
        if name is not None:
            taken.add(name)


def _usable_master_port(template: Node) -> Iterator[Problem]:
    port = template.node("env").value("MASTER_PORT")
    if port is not None and parse_port(port) is None:
        yield Problem(
            template.at("env", "MASTER_PORT"),
            "bad_port",
            f'{shown(port)} is no port. Write one from "1" to "{MAX_PORT}".',
        )


def _warning_before_limit(template: Node) -> Iterator[Problem]:
    warning, limit = template.value("warn_signal_seconds"), template.value("time_limit_seconds")
    place = template.at("warn_signal_seconds")
    if warning is not None and limit is None:
        yield Problem(
            place, "warn_without_limit", "A warning before the time limit needs `time_limit_seconds`."
        )
    elif warning is not None and warning >= limit:
        yield Problem(
            place,
            "warn_before_start",
            f"The warning would come before the start: the time limit is {format_duration(limit)}. Use less "
            f"than {limit}.",
        )


def _one_kind_of_probe(template: Node) -> Iterator[Problem]:
    probes = template.node("probes")
    for name in ("startup", "readiness", "liveness"):
        if not probes.has(name):
            continue
        probe = probes.node(name)
        if sum(probe.has(kind) for kind in ("exec", "tcp", "http")) != 1:
            yield Problem(probe.location, "probe_kind", "Give exactly one of `exec`, `tcp` and `http`.")


def _resources(template: Node) -> Iterator[Problem]:
    yield from apply(RESOURCE_RULES, template.node("requested_resources"))


_SPEC_RULES: Final[tuple[Rule, ...]] = (
    _one_way_of_templates,
    _different_group_names,
    _gang_restarts_together,
    _few_independent,
    _no_spread_of_independent,
    _small_configs,
)
_TEMPLATE_RULES: Final[tuple[Rule, ...]] = (
    _resources,
    _different_mounts,
    _nothing_below_files,
    _one_target_of_secrets,
    _different_variables,
    _usable_master_port,
    _warning_before_limit,
    _one_kind_of_probe,
)
