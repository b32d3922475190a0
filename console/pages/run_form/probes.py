"""How a worker is looked at while it runs: each probe's way to look, how often, and how many misses count."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from console.pages.run_form.entries import TEMPLATE, Entry, Options, Values, first
from console.pages.run_form.kinds import DURATION, NUMBER, TEXT, Kind, NotShown, command_read, command_show
from console.pages.run_form.places import JSON, MISSING, default_at, same, value_at, value_set
from wire.spec.errors import Location

PROBES: Final[Location] = (*TEMPLATE, "probes")
NONE: Final = ""
LOOKS: Final[Options] = (
    (NONE, "none"),
    ("exec", "a command in the worker"),
    ("tcp", "a connection to a port"),
    ("http", "a request over HTTP"),
)
_DETAILS: Final[tuple[tuple[str, Kind], ...]] = (
    ("period_seconds", DURATION),
    ("timeout_seconds", DURATION),
    ("failure_threshold", NUMBER),
)
_PARTS: Final = ("by", "command", "port", "path", "every", "timeout", "failures")


@dataclass(frozen=True, slots=True)
class Looked(Entry):
    """One probe. Its place is one object: what the inputs have no words for is not shown, and stays."""

    def inputs(self) -> tuple[str, ...]:
        return tuple(f"{self.name}-{part}" for part in _PARTS)

    def empty(self) -> Mapping[str, str]:
        [place] = self.places
        *_, path, every, timeout, failures = self.inputs()
        details = zip((every, timeout, failures), _DETAILS, strict=True)
        shown = {name: kind.show(default_at((*place, field))) for name, (field, kind) in details}
        return {path: TEXT.show(default_at((*place, "http", "path")))} | shown

    def show(self, document: Any) -> Values:
        [probe] = self.normal(document)
        if probe is MISSING:
            return dict(zip(self.inputs(), ([NONE], *([],) * 6), strict=True))
        if not isinstance(probe, dict):
            raise NotShown
        by = [name for name, _ in LOOKS if name and probe.get(name) is not None]
        if len(by) != 1:
            raise NotShown
        details = (_held(probe, name, kind) for name, kind in _DETAILS)
        return dict(zip(self.inputs(), (by, *_shown(by[0], probe[by[0]]), *details), strict=True))

    def write(self, document: JSON, values: Values) -> None:
        """What belongs to another way to look than the chosen one doesn't count: the page doesn't show it then."""
        [place] = self.places
        by, *typed = (first(values, name) for name in self.inputs())
        if by == NONE:
            value_set(document, place, MISSING)
            return
        probe: JSON = {}
        for name, value in _look(by, *typed[:3]).items():
            _put(probe, (by, name), place, value)
        for (name, kind), text in zip(_DETAILS, typed[3:], strict=True):
            _put(probe, (name,), place, kind.read(text))
        value_set(document, place, probe)

    def normal(self, document: Any) -> list[Any]:
        """With the defaults of what it leaves out: 10 s written and 10 s left out are one."""
        [place] = self.places
        probe = value_at(document, place)
        if not isinstance(probe, dict):
            return [probe]
        filled = {key: value for key, value in probe.items() if value is not None}
        for name, _ in _DETAILS:
            filled.setdefault(name, default_at((*place, name)))
        for by, field in (("exec", "args"), ("http", "path")):
            if isinstance(look := filled.get(by), dict):
                given = {key: value for key, value in look.items() if value is not None}
                filled[by] = {field: default_at((*place, by, field))} | given
        return [filled]

    def said(self, values: Values) -> str:
        by = first(values, f"{self.name}-by")
        return f"{self.title.lower()}: {dict(LOOKS)[by]}" if by else ""


def _put(probe: JSON, where: Location, place: Location, value: Any) -> None:
    """What the default says is left out."""
    if not same(value, default_at((*place, *where))):
        value_set(probe, where, value)


def _held(probe: JSON, name: str, kind: Kind) -> list[str]:
    return [kind.show(probe[name])] if probe.get(name) is not None else []


def _shown(by: str, look: Any) -> tuple[list[str], list[str], list[str]]:
    """What stands in the inputs of command, port and path. Raises NotShown."""
    if not isinstance(look, dict):
        raise NotShown
    if by == "exec":
        words = [look.get("command"), *_list(look.get("args"))]
        if not all(isinstance(word, str) for word in words):
            raise NotShown
        return [command_show(words)], [], []
    port = [] if look.get("port") is None else [NUMBER.show(look["port"])]
    return [], port, [] if look.get("path") is None else [TEXT.show(look["path"])]


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list | None):
        raise NotShown
    return value or []


def _look(by: str, command: str, port: str, path: str) -> JSON:
    """What one look does. Raises ValueError where what it needs is not there."""
    if by == "exec":
        words = command_read(command)
        if not words:
            raise ValueError("Write the command, or choose none.")
        return {"command": words[0], "args": words[1:]}
    number = NUMBER.read(port)
    if number is MISSING:
        raise ValueError("Write the port, or choose none.")
    return {"port": number} | ({"path": TEXT.read(path)} if by == "http" else {})


PROBE_ENTRIES: Final[tuple[Entry, ...]] = tuple(
    Looked(name, title, ((*PROBES, name),), hint, "probe", LOOKS)
    for name, title, hint in (
        (
            "startup",
            "Start-up",
            "Until it succeeds the other probes wait; when it fails, the worker has failed.",
        ),
        ("readiness", "Readiness", "Shown on the worker's page; a failure stops nothing."),
        ("liveness", "Liveness", "When it fails, the worker has failed, as if its process had ended."),
    )
)
