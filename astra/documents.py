"""Run documents: built from flags, read from files, changed by options, checked before they leave.

The rules are those of `wire.spec`, which the server uses too: the same messages, offline.
"""

import json
import os
import re
import stat
import sys
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from astra.errors import FieldError, InvalidDocumentError, UsageError
from astra.typed import read_quantity
from wire.quantities import parse_duration, parse_size
from wire.spec import SpecErrors, Unreadable, parse_document, read_text, validate_document

Document = dict[str, Any]

_STEP = re.compile(
    r"""\.?(?:(?P<word>[^.\[\]"=]+)|"(?P<quoted>[^"]*)"|\[(?P<index>\d{1,6})\]|\["(?P<key>[^"]*)"\])"""
)
_TEXT_MAPS = frozenset({"env", "labels", "match_labels"})
"""Maps whose values are text: `env.STEPS=10` means "10"."""


@dataclass(frozen=True, slots=True)
class RunFlags:
    """What `astra astraeus run` can say. With GPUs, `cpus` and `mem` are per GPU, otherwise per worker."""

    name: str
    image: str
    command: tuple[str, ...] = ()
    gpus: int | None = None
    machines: int | None = None
    cpus: float | None = None
    mem: str | None = None
    time: str | None = None
    env: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    cluster: str | None = None
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)


def build(flags: RunFlags) -> Document:
    """The document of a run command. Only what was said is written: defaults are the server's business."""
    metadata: Document = {"name": flags.name}
    if flags.labels:
        metadata["labels"] = dict(pair(text, "--label") for text in flags.labels)
    spec: Document = {"task_template": _task(flags)}
    if flags.machines is not None and flags.machines > 1:
        spec["start"] = "Gang"
    if flags.cluster:
        spec["cluster"] = flags.cluster
    return {"metadata": metadata, "spec": spec}


def _task(flags: RunFlags) -> Document:
    task: Document = {"image": flags.image}
    if flags.command:
        task |= {"command": flags.command[0], "args": list(flags.command[1:])}
    if flags.env:
        task["env"] = dict(_variable(text, flags.environ) for text in flags.env)
    if flags.time is not None:
        task["time_limit_seconds"] = read_quantity(parse_duration, flags.time, "--time")
    if resources := _resources(flags):
        task["requested_resources"] = resources
    return task


def _resources(flags: RunFlags) -> Document:
    resources: Document = {}
    if flags.gpus:
        resources["gpu_requests"] = {"count": flags.gpus}
    if flags.machines is not None:
        resources["machines"] = flags.machines
    if amounts := _amounts(flags):
        resources |= {"per_gpu": amounts} if flags.gpus else amounts
    return resources


def _amounts(flags: RunFlags) -> Document:
    amounts: Document = {}
    if flags.cpus is not None:
        amounts["cpu_cores"] = int(flags.cpus) if flags.cpus.is_integer() else flags.cpus
    if flags.mem is not None:
        amounts["memory_bytes"] = read_quantity(parse_size, flags.mem, "--mem")
    return amounts


def pair(text: str, option: str) -> tuple[str, str]:
    """`key=value`; the value may be empty, the key may not."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"{option} takes KEY=VALUE, not “{text}”.")
    return key, value


def _variable(text: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """`K=V`, or `K` alone for the value it has here."""
    if "=" in text:
        return pair(text, "-e")
    if text not in environ:
        raise UsageError(f"-e {text}: there is no variable {text} here. Write {text}=VALUE.")
    return text, environ[text]


# --- Files --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Changes:
    """What `submit` changes in a file's document."""

    sets: tuple[str, ...] = ()
    configs: tuple[str, ...] = ()
    name: str | None = None

    def __bool__(self) -> bool:
        return bool(self.sets or self.configs or self.name is not None)


def load(path: str, changes: Changes | None = None) -> Document:
    """The valid document in a file, or on stdin for `-`; else InvalidDocumentError with all that is wrong."""
    try:
        text = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}.") from error
    try:
        if changes:
            # Only read, not yet checked: a change may be what makes the document valid.
            return check(with_changes(read_text(text), changes))
        return parse_document(text).as_json()
    except SpecErrors as error:
        raise _invalid(error) from None
    except Unreadable as error:
        raise InvalidDocumentError([FieldError("", str(error))]) from None


def check(document: Mapping[str, Any]) -> Document:
    """The document as it is sent; raises InvalidDocumentError with everything that is wrong."""
    try:
        return validate_document(document).as_json()
    except SpecErrors as error:
        raise _invalid(error) from None


def _invalid(errors: SpecErrors) -> InvalidDocumentError:
    return InvalidDocumentError([FieldError(error.path, error.message) for error in errors.errors])


# --- Changes ------------------------------------------------------------------------------------------


def with_changes(document: Any, changes: Changes) -> Document:
    """A changed copy: `--set` in the order given, then `--config`, then `--name`."""
    if not isinstance(document, dict):
        raise UsageError("The document is no JSON object, so there is nothing in it to change.")
    changed = deepcopy(document)
    for text in changes.sets:
        _set(changed, text)
    for text in changes.configs:
        _attach(changed, text)
    if changes.name is not None:
        _put(changed, ["metadata", "name"], changes.name, "--name")
    return changed


Steps = Sequence[str | int]


def _set(document: Document, text: str) -> None:
    steps, value = _parse_set(text)
    is_text = len(steps) > 1 and steps[-2] in _TEXT_MAPS
    _put(document, steps, value if is_text else _json_or_text(value), f"--set {text}")


def _parse_set(text: str) -> tuple[list[str | int], str]:
    steps: list[str | int] = []
    end = 0
    while match := _STEP.match(text, end):
        index, key = match["index"], match["word"] or match["quoted"] or match["key"]
        steps.append(int(index) if index is not None else key or "")
        end = match.end()
    if not steps or text[end : end + 1] != "=" or steps[0] not in ("metadata", "spec"):
        raise UsageError(
            f"--set takes PATH=VALUE with a path such as spec.task_template.env.STEPS or "
            f"spec.task_template.args[1], not “{text}”."
        )
    return steps, text[end + 1 :]


def _json_or_text(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value


def _put(document: Document, steps: Steps, value: Any, what: str) -> None:
    """Objects that are missing on the way are made; a list grows by one element at most."""
    here: Any = document
    for step, following in pairwise(steps):
        here = _enter(here, step, [] if isinstance(following, int) else {}, what)
    if isinstance(here, list):
        index = _index(here, steps[-1], what)
        here[index : index + 1] = [value]
    elif isinstance(here, dict) and isinstance(steps[-1], str):
        here[steps[-1]] = value
    else:
        raise UsageError(f"{what}: there is nothing at this place that “{steps[-1]}” could stand in.")


def _enter(here: Any, step: str | int, missing: Any, what: str) -> Any:
    if isinstance(here, list):
        index = _index(here, step, what)
        if index == len(here):
            here.append(missing)
        return here[index]
    if isinstance(here, dict) and isinstance(step, str):
        return here.setdefault(step, missing)
    raise UsageError(f"{what}: there is nothing at this place that “{step}” could stand in.")


def _index(here: list[Any], step: str | int, what: str) -> int:
    index = int(step) if isinstance(step, int) or step.isdecimal() else -1
    if not 0 <= index <= len(here):
        raise UsageError(f"{what}: the list has {len(here)} elements, so “{step}” is no place in it.")
    return index


def _attach(document: Document, text: str) -> None:
    """Adds a local file to every group of workers; one that is mounted at the same path is replaced."""
    local, colon, mount = text.rpartition(":/")
    if not colon or not local:
        raise UsageError(f"--config takes LOCAL:/PATH/IN/THE/WORKER, not “{text}”.")
    config = _config(local, f"/{mount}")
    for task in _task_templates(document):
        present = task.setdefault("configs", [])
        if not isinstance(present, list):
            raise UsageError(f"--config {text}: `configs` in the document is no list.")
        present[:] = [old for old in present if not _mounts_at(old, config["mounts"])] + [config]


def _config(local: str, mount: str) -> Document:
    path = Path(local)
    try:
        value = path.read_bytes().decode("utf-8")
        executable = path.stat().st_mode & stat.S_IXUSR
    except OSError as error:
        raise UsageError(f"--config: {local} can't be read: {error.strerror}.") from error
    except UnicodeDecodeError:
        raise UsageError(
            f"--config: {local} is no UTF-8 text. Put binary files into the image or on a drive."
        ) from None
    return {"mounts": [mount], "value": value} | ({"mode": 0o555} if executable else {})


def _mounts_at(config: Any, mounts: list[str]) -> bool:
    return isinstance(config, dict) and config.get("mounts") == mounts


def _task_templates(document: Document) -> list[Document]:
    spec = document.get("spec")
    if not isinstance(spec, dict):
        raise UsageError("--config: the document has no `spec` to attach a file to.")
    groups = spec.get("worker_groups")
    holders = groups if isinstance(groups, list) else [spec]
    tasks = [holder.get("task_template") for holder in holders if isinstance(holder, dict)]
    return [task for task in tasks if isinstance(task, dict)]
