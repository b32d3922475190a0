"""The form as its template draws it: fields with their values, options, problems and marks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from zlib import crc32

from common.errors import FieldError
from console.pages.run_form.draft import Draft, opened
from console.pages.run_form.entries import Entry, Options, Values
from console.pages.run_form.form import Form, Hidden, Spots, form_of, spots_of, summary
from console.pages.run_form.rows import ROWS, Column, Rows
from console.pages.run_form.table import MAIN, SECTIONS
from machines.drives import drive_access_of
from machines.models import Cluster, WorkspacePool
from runs.supply import Supply, gpu_supply
from tenancy.models import RegistryCredential, Secret, Workspace


@dataclass(frozen=True, slots=True)
class Input:
    """One input of a field."""

    name: str
    values: tuple[str, ...]
    empty: str = ""
    """What counts where it is left empty."""

    @property
    def value(self) -> str:
        return self.values[0] if self.values else ""


@dataclass(frozen=True, slots=True)
class Choice:
    value: str
    words: str
    chosen: bool
    note: str = ""
    key: str = ""
    """Of the place where its note stands."""


@dataclass(frozen=True, slots=True)
class FieldShown:
    name: str
    title: str
    hint: str
    widget: str
    inputs: tuple[Input, ...]
    choices: tuple[Choice, ...] = ()
    problem: str = ""
    marked: bool = False

    @property
    def value(self) -> str:
        return self.inputs[0].value

    @property
    def described(self) -> str:
        """Ids of what describes it."""
        return " ".join(
            f"f-{self.name}-{part}" for part in ("hint", "problem") if part != "hint" or self.hint
        )


@dataclass(frozen=True, slots=True)
class Cell:
    column: Column
    id: str
    value: str
    choices: tuple[Choice, ...]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class RowShown:
    number: int
    of: str
    """Index in the document's list; empty for a new one."""
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class ListShown:
    rows: Rows
    shown: tuple[RowShown, ...]
    """The last one is new."""
    problem: str = ""

    @property
    def opened(self) -> bool:
        return bool(self.problem) or any(cell.problem for row in self.shown for cell in row.cells)

    @property
    def said(self) -> str:
        count = len(self.shown) - 1
        return f"{count} {self.rows.one}{'' if count == 1 else 's'}" if count else ""


@dataclass(frozen=True, slots=True)
class SectionShown:
    key: str
    title: str
    said: str
    fields: tuple[FieldShown, ...]
    opened: bool


@dataclass(frozen=True, slots=True)
class Board:
    main: tuple[FieldShown, ...]
    sections: tuple[SectionShown, ...]
    lists: tuple[ListShown, ...]
    hidden: tuple[Hidden, ...]


@dataclass(frozen=True, slots=True)
class Stock:
    """What the workspace may choose from."""

    models: tuple[Supply, ...] = ()
    clusters: tuple[str, ...] = ()
    default_cluster: str = ""
    pools: tuple[str, ...] = ()
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """List or entry → names of the workspace's drives, secrets, registry credentials."""


def stock_of(workspace: Workspace) -> Stock:
    clusters = Cluster.objects.filter(organization=workspace.organization_id).order_by("slug")
    home = next((each for each in clusters if each.slug == workspace.default_cluster), None)
    pools = WorkspacePool.objects.filter(workspace=workspace).order_by("pool__slug")
    return Stock(
        models=gpu_supply(workspace, home) if home else (),
        clusters=tuple(each.slug for each in clusters),
        default_cluster=workspace.default_cluster,
        pools=tuple(dict.fromkeys(pools.values_list("pool__slug", flat=True))),
        names={
            "drives": tuple(
                drive_access_of(workspace).order_by("volume__name").values_list("volume__name", flat=True)
            ),
            "secrets": tuple(
                Secret.objects.filter(workspace=workspace).order_by("name").values_list("name", flat=True)
            ),
            "registry": tuple(
                RegistryCredential.objects.filter(workspace=workspace)
                .order_by("name")
                .values_list("name", flat=True)
            ),
        },
    )


def board_of(draft: Draft, stock: Stock, errors: Sequence[FieldError], post: Values | None = None) -> Board:
    """The form of the draft's document. `post`: what was typed where it can't be read."""
    document, _ = opened(draft.text)
    form = form_of(document)
    draw = _Draw(form, draft, stock, problems_by_spot(draft, errors, spots_of(form)), post or {})
    return Board(
        main=draw.fields(MAIN),
        sections=tuple(draw.section(each.key, each.title, each.entries) for each in SECTIONS),
        lists=tuple(draw.rows(each, form.rows[each.name]) for each in ROWS if each.name in form.rows),
        hidden=form.hidden,
    )


def problems_by_spot(draft: Draft, errors: Sequence[FieldError], spots: Spots) -> dict[str, str]:
    """The first thing that is wrong with each entry or cell; what can't be read says most."""
    found: dict[str, str] = {}
    for error in errors:
        if name := spots.of(error.path):
            found.setdefault(name, error.message)
    return found | draft.problems


def summaries(draft: Draft) -> dict[str, str]:
    """Section → what its heading says."""
    form = form_of(opened(draft.text)[0])
    return {each.key: summary(form, each.entries) for each in SECTIONS}


def model_counts(workspace: Workspace) -> dict[str, str]:
    """`Choice.key` → the note of that model now."""
    cluster = Cluster.objects.filter(
        organization=workspace.organization_id, slug=workspace.default_cluster
    ).first()
    supply = gpu_supply(workspace, cluster) if cluster else ()
    return {model_key(each.model): supply_words(each) for each in supply}


def model_key(model: str) -> str:
    return f"free-{crc32(model.encode()):x}"


@dataclass(frozen=True, slots=True)
class _Draw:
    form: Form
    draft: Draft
    stock: Stock
    problems: Mapping[str, str]
    post: Values

    def fields(self, entries: Sequence[Entry]) -> tuple[FieldShown, ...]:
        return tuple(self.field(each) for each in entries if each.name in self.form.values)

    def section(self, key: str, title: str, entries: tuple[Entry, ...]) -> SectionShown:
        fields = self.fields(entries)
        opened_ = any(each.problem or each.marked for each in fields)
        return SectionShown(key, title, summary(self.form, entries), fields, opened_)

    def field(self, entry: Entry) -> FieldShown:
        empty = entry.empty()
        inputs = tuple(
            Input(f"f-{name}", self._values(entry, name), empty.get(name, "")) for name in entry.inputs()
        )
        return FieldShown(
            name=entry.name,
            title=entry.title,
            hint=self._hint(entry),
            widget=entry.drawn_as,
            inputs=inputs,
            choices=self._choices(entry, inputs[0].values),
            problem=self.problems.get(entry.name, ""),
            marked=entry.name in self.draft.marked,
        )

    def _values(self, entry: Entry, name: str) -> tuple[str, ...]:
        """As it was typed where that can't be read."""
        if entry.name in self.draft.problems:
            return tuple(self.post.get(f"f-{name}", ()))
        return tuple(self.form.values[entry.name].get(name, ()))

    def _hint(self, entry: Entry) -> str:
        if entry.name == "selection" and self.stock.pools:
            return f"Names with commas; labels as key=value. Pools: {', '.join(self.stock.pools)}."
        return entry.hint

    def _choices(self, entry: Entry, chosen: tuple[str, ...]) -> tuple[Choice, ...]:
        if entry.name == "models":
            return self._models(chosen)
        options = entry.options or self._options(entry.name)
        return choices_of(options, chosen or ("",)) if options or chosen else ()

    def _options(self, name: str) -> Options:
        if name == "cluster":
            others = tuple((each, each) for each in self.stock.clusters)
            return (("", f"the workspace's: {self.stock.default_cluster}"), *others)
        return (("", "none"), *((each, each) for each in self.stock.names.get(name, ())))

    def _models(self, chosen: tuple[str, ...]) -> tuple[Choice, ...]:
        known = [
            Choice(each.model, each.model, each.model in chosen, supply_words(each), model_key(each.model))
            for each in self.stock.models
        ]
        names = {each.model for each in self.stock.models}
        others = [Choice(each, each, chosen=True, note="none here") for each in chosen if each not in names]
        return (*known, *others)

    def rows(self, rows: Rows, shown: Mapping[int, Mapping[str, str]]) -> ListShown:
        drawn = [self._row(rows, number, str(of), row) for number, (of, row) in enumerate(shown.items())]
        new = self._row(rows, len(drawn), "", {})
        return ListShown(rows, (*drawn, new), self.problems.get(rows.name, ""))

    def _row(self, rows: Rows, number: int, of: str, row: Mapping[str, str]) -> RowShown:
        cells = tuple(
            Cell(
                column,
                f"{rows.name}-{number}-{column.key}",
                row.get(column.key, ""),
                self._column_choices(rows, column, row.get(column.key, "")),
                self.problems.get(f"{rows.name}-{number}-{column.key}", ""),
            )
            for column in rows.columns
        )
        return RowShown(number, of, cells)

    def _column_choices(self, rows: Rows, column: Column, value: str) -> tuple[Choice, ...]:
        if column.widget != "choice":
            return ()
        names = (("", "choose"), *((each, each) for each in self.stock.names.get(rows.name, ())))
        return choices_of(column.options or names, (value,))


def choices_of(options: Options, chosen: tuple[str, ...]) -> tuple[Choice, ...]:
    """The options, and what is chosen although it is none."""
    known = {value for value, _ in options}
    others = [Choice(value, value, chosen=True) for value in chosen if value not in known]
    return (*(Choice(value, words, value in chosen) for value, words in options), *others)


def supply_words(supply: Supply) -> str:
    return f"{supply.free:,} free of {supply.total:,}"
