"""Entries of the form: each shows a few places of the document and writes them, and nothing else."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from console.pages.run_form.kinds import (
    CHOICE,
    NAMES,
    NUMBER,
    PAIRS,
    SIZE,
    Kind,
    NotShown,
    command_read,
    command_show,
)
from console.pages.run_form.places import JSON, MISSING, default_at, same, value_at, value_set
from wire.spec.errors import Location

Values = Mapping[str, Sequence[str]]
"""Name of an input → what it holds; a box that is not ticked holds nothing."""
Options = tuple[tuple[str, str], ...]
"""Value and words of each."""

TEMPLATE: Final[Location] = ("spec", "task_template")
RESOURCES: Final[Location] = (*TEMPLATE, "requested_resources")
GPUS: Final[Location] = (*RESOURCES, "gpu_requests")
TOPOLOGY: Final[Location] = (*RESOURCES, "topology")
SELECTION: Final[Location] = (*RESOURCES, "node_selection")


def first(values: Values, name: str) -> str:
    """What the input holds; empty where it holds nothing. Browsers send line breaks as CR LF."""
    return next(iter(values.get(name, ())), "").replace("\r\n", "\n")


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that the form asks. `name` begins the names of its inputs."""

    name: str
    title: str
    places: tuple[Location, ...]
    hint: str = ""
    widget: str = ""
    options: Options = ()

    @property
    def drawn_as(self) -> str:
        """The template's word for its inputs."""
        return self.widget

    def inputs(self) -> tuple[str, ...]:
        return (self.name,)

    def empty(self) -> Mapping[str, str]:
        """Of an input that is left empty: what counts then, shown in its place."""
        return {}

    def show(self, document: Any) -> Values:
        """What its inputs hold for this document. Raises NotShown."""
        raise NotImplementedError

    def write(self, document: JSON, values: Values) -> None:
        """Sets its places. Raises ValueError with a sentence where the values can't be read."""
        raise NotImplementedError

    def said(self, values: Values) -> str:
        """A few words for the heading of a closed section; empty where nothing differs from the default."""
        del values
        return ""

    def normal(self, document: Any) -> list[Any]:
        """Its places' values, defaults filled in: what it must not lose."""
        found = ((value_at(document, place), place) for place in self.places)
        return [default_at(place) if value is MISSING else value for value, place in found]


def faithful(entry: Entry, values: Values, document: Any) -> bool:
    """Whether the entry would write what the document says."""
    copy: JSON = {}
    try:
        entry.write(copy, values)
    except ValueError:
        return False
    return all(map(same, entry.normal(copy), entry.normal(document)))


@dataclass(frozen=True, slots=True)
class One(Entry):
    """One place in one field. `kind` shows and reads it, `words` ({} is its value) tells of it."""

    kind: Kind = CHOICE
    words: str = ""

    @property
    def drawn_as(self) -> str:
        return self.kind.widget

    def show(self, document: Any) -> Values:
        [value] = self.normal(document)
        empty = value is MISSING or (self.kind in {PAIRS, NAMES} and not value)
        return {self.name: [] if empty else [self.kind.show(value)]}

    def write(self, document: JSON, values: Values) -> None:
        [place] = self.places
        value = self.kind.read(first(values, self.name))
        value_set(document, place, MISSING if same(value, default_at(place)) else value)

    def said(self, values: Values) -> str:
        copy: JSON = {}
        self.write(copy, values)
        if not copy:
            return ""
        shown = first(values, self.name)
        if self.kind is PAIRS:
            count = len(value_at(copy, self.places[0]))
            return self.words.format(count) + ("" if count == 1 else "s")
        words = dict(self.options).get(shown, shown)
        return (self.words or "{}").format(words)


@dataclass(frozen=True, slots=True)
class Check(Entry):
    """True or false; `words` tells of true."""

    words: str = ""

    def show(self, document: Any) -> Values:
        [value] = self.normal(document)
        if not isinstance(value, bool):
            raise NotShown
        return {self.name: ["on"] if value else []}

    def write(self, document: JSON, values: Values) -> None:
        [place] = self.places
        ticked = bool(first(values, self.name))
        value_set(document, place, MISSING if ticked == default_at(place) else ticked)

    def said(self, values: Values) -> str:
        return self.words if first(values, self.name) else ""


@dataclass(frozen=True, slots=True)
class Command(Entry):
    """The executable and its arguments on one line, as in a shell."""

    def show(self, document: Any) -> Values:
        command, words = self.normal(document)
        if command is MISSING:
            if words:
                raise NotShown
            return {self.name: []}
        if not isinstance(words, list) or not all(isinstance(word, str) for word in [command, *words]):
            raise NotShown
        return {self.name: [command_show([command, *words])]}

    def write(self, document: JSON, values: Values) -> None:
        words = command_read(first(values, self.name))
        command, arguments = self.places
        value_set(document, command, words[0] if words else MISSING)
        value_set(document, arguments, words[1:] or MISSING)


@dataclass(frozen=True, slots=True)
class Several(Entry):
    """A list of ticked options; what else the list holds is an option, too."""

    def show(self, document: Any) -> Values:
        [value] = self.normal(document)
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise NotShown
        return {self.name: value}

    def write(self, document: JSON, values: Values) -> None:
        """Those that were there keep their order."""
        [place] = self.places
        ticked = list(dict.fromkeys(values.get(self.name, ())))
        was = value_at(document, place) or []
        kept = [each for each in was if each in ticked] if isinstance(was, list) else []
        value_set(document, place, kept + [each for each in ticked if each not in kept] or MISSING)


@dataclass(frozen=True, slots=True)
class Machines(Entry):
    """Astraeus chooses, exactly so many, or a range."""

    places: tuple[Location, ...] = field(
        default=((*RESOURCES, "machines"), (*TOPOLOGY, "min_nodes"), (*TOPOLOGY, "max_nodes"))
    )

    def inputs(self) -> tuple[str, ...]:
        return tuple(f"{self.name}-{part}" for part in ("mode", "exactly", "least", "most"))

    def show(self, document: Any) -> Values:
        exactly, least, most = (
            [] if value is MISSING else [NUMBER.show(value)] for value in self.normal(document)
        )
        mode = "exactly" if exactly else "between" if least or most else "any"
        return dict(zip(self.inputs(), ([mode], exactly, least, most), strict=True))

    def write(self, document: JSON, values: Values) -> None:
        mode, *typed = (first(values, name) for name in self.inputs())
        exactly, least, most = (NUMBER.read(text) for text in typed)
        if mode == "exactly" and exactly is MISSING:
            raise ValueError("Write how many machines, or let Astraeus choose.")
        if mode == "between" and least is MISSING and most is MISSING:
            raise ValueError("Write the lowest and the highest number of machines, or let Astraeus choose.")
        between = mode == "between"
        chosen = (exactly if mode == "exactly" else MISSING, *((least, most) if between else (MISSING,) * 2))
        for place, value in zip(self.places, chosen, strict=True):
            value_set(document, place, value)


@dataclass(frozen=True, slots=True)
class Amounts(Entry):
    """Cores and memory with each GPU, or of each worker."""

    places: tuple[Location, ...] = field(
        default=(
            (*RESOURCES, "per_gpu", "cpu_cores"),
            (*RESOURCES, "per_gpu", "memory_bytes"),
            (*RESOURCES, "cpu_cores"),
            (*RESOURCES, "memory_bytes"),
        )
    )

    def inputs(self) -> tuple[str, ...]:
        return tuple(f"{self.name}-{part}" for part in ("mode", "cores", "memory"))

    def show(self, document: Any) -> Values:
        each = self.normal(document)
        per_gpu, per_worker = each[:2], each[2:]
        own = any(value is not MISSING for value in per_worker)
        cores, memory = per_worker if own else per_gpu
        return {
            f"{self.name}-mode": ["worker" if own else "gpu"],
            f"{self.name}-cores": [] if cores is MISSING else [NUMBER.show(cores)],
            f"{self.name}-memory": [] if memory is MISSING else [SIZE.show(memory)],
        }

    def write(self, document: JSON, values: Values) -> None:
        mode, cores, memory = (first(values, name) for name in self.inputs())
        amounts = (NUMBER.read(cores), SIZE.read(memory))
        nothing = (MISSING, MISSING)
        chosen = (*nothing, *amounts) if mode == "worker" else (*amounts, *nothing)
        for place, value in zip(self.places, chosen, strict=True):
            value_set(document, place, value)


_LISTS: Final = {"Pools": "pools", "Machines": "machines", "Labels": "match_labels"}


@dataclass(frozen=True, slots=True)
class Selected(Entry):
    """Which machines: a mode, and the list that it reads."""

    places: tuple[Location, ...] = field(
        default=((*SELECTION, "mode"), *((*SELECTION, name) for name in _LISTS.values()))
    )

    def inputs(self) -> tuple[str, ...]:
        return (f"{self.name}-mode", f"{self.name}-list")

    def show(self, document: Any) -> Values:
        mode, *lists = self.normal(document)
        chosen = dict(zip(_LISTS, lists, strict=True)).get(mode)
        kind = PAIRS if mode == "Labels" else NAMES
        return {
            f"{self.name}-mode": [CHOICE.show(mode)],
            f"{self.name}-list": [kind.show(chosen)] if chosen else [],
        }

    def write(self, document: JSON, values: Values) -> None:
        mode, text = (first(values, name) for name in self.inputs())
        value = (PAIRS if mode == "Labels" else NAMES).read(text)
        if mode == "Any":
            value = MISSING
        elif value is MISSING:
            raise ValueError("Write at least one entry, or choose all of the workspace's pools.")
        place, *lists = self.places
        value_set(document, place, MISSING if mode == default_at(place) else mode)
        for name, of_list in zip(_LISTS, lists, strict=True):
            value_set(document, of_list, value if name == mode else MISSING)

    def said(self, values: Values) -> str:
        mode, text = (first(values, name) for name in self.inputs())
        return "" if mode in {"Any", ""} else f"{mode.lower()} {', '.join(text.split())}".replace(",,", ",")
