"""Lists of things in the form: files, drives, secrets. A row each, and an empty one for the next."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from console.pages.run_form.entries import Options, Values, first
from console.pages.run_form.kinds import NotShown, names_show, text_show
from console.pages.run_form.places import JSON, MISSING, same, value_at, value_set
from wire.spec.errors import Location

MOST_ROWS = 512
"""More than any list of the document may have."""


@dataclass(frozen=True, slots=True)
class Column:
    key: str
    title: str
    widget: str
    hint: str = ""
    options: Options = ()
    fields: tuple[str, ...] = ()
    """Fields of the item that it stands for, where that is not `key` alone."""


class Rows:
    """A list of the document whose items stand in rows."""

    name: str
    title: str
    place: Location
    one: str
    """What one of them is called."""
    about: str
    columns: tuple[Column, ...]

    def show_item(self, item: Any) -> dict[str, str]:
        """What the columns hold. Raises NotShown."""
        raise NotImplementedError

    def write_item(self, item: JSON, values: Mapping[str, str]) -> JSON:
        """The item as the row says; what the row has no column for stays."""
        raise NotImplementedError

    def shown(self, document: Any) -> dict[int, dict[str, str]]:
        """Index in the list → what its row holds; an item that no row can show is left out."""
        items = value_at(document, self.place)
        rows = {}
        for index, item in enumerate(items if isinstance(items, list) else []):
            try:
                row = self.show_item(item)
            except NotShown:
                continue
            if same(self.normal(self.write_item({}, row) | _others(item, self)), self.normal(item)):
                rows[index] = row
        return rows

    def normal(self, item: JSON) -> JSON:
        """Without what says nothing."""
        return {key: value for key, value in item.items() if value is not None}

    def posted(self, post: Values) -> list[tuple[int, int | None, dict[str, str]]]:
        """Rows as they were sent: their number, the index in the list (None: a new one) and what they hold."""
        rows = []
        for number in range(MOST_ROWS):
            start = f"{self.name}-{number}-"
            if f"{start}of" not in post:
                break
            if first(post, f"{start}remove"):
                continue
            of = first(post, f"{start}of")
            row = {column.key: first(post, f"{start}{column.key}") for column in self.columns}
            rows.append((number, int(of) if of.isascii() and of.isdecimal() else None, row))
        return rows

    def numbers(self, post: Values) -> list[int]:
        """Of the rows that were sent and say something: they stand in the document in this order."""
        return [number for number, of, row in self.posted(post) if of is not None or any(row.values())]

    def column_of(self, field: str) -> Column:
        """The column that stands for a field of an item; the first where none does."""
        own = (column for column in self.columns if field in (column.fields or (column.key,)))
        return next(own, self.columns[0])

    def write(self, document: JSON, post: Values) -> None:
        """The list with its rows as they were sent; items without a row keep their place."""
        found = value_at(document, self.place)
        items: list[Any] = found if isinstance(found, list) else []
        if found is not MISSING and found is not items:
            return
        shown = self.shown(document)
        sent = {of: row for _, of, row in self.posted(post) if of in shown}
        kept = []
        for index, item in enumerate(items):
            if index in sent:
                kept.append(item if sent[index] == shown[index] else self.write_item(dict(item), sent[index]))
            elif index not in shown:
                kept.append(item)
        new = [row for _, of, row in self.posted(post) if of is None and any(row.values())]
        after = kept + [self.write_item({}, row) for row in new]
        if not same(after, items):
            value_set(document, self.place, after or MISSING)


def _others(item: JSON, rows: Rows) -> JSON:
    """What no column stands for."""
    mine = {key for column in rows.columns for key in column.fields or (column.key,)}
    return {key: value for key, value in item.items() if key not in mine}


def _given(**values: Any) -> JSON:
    return {key: value for key, value in values.items() if value}


def _fields(item: Any, *keys: str) -> Sequence[Any]:
    if not isinstance(item, dict):
        raise NotShown
    return [item.get(key, "") for key in keys]


class Files(Rows):
    name, title, one = "files", "Files", "file"
    place = ("spec", "task_template", "configs")
    about = "Text files that come with the run, read-only, 1 MiB in all. Drop files anywhere on this page."
    columns = (
        Column("mounts", "Path in every worker", "text", "Such as /app/train.py"),
        Column("value", "Content", "area"),
    )

    def show_item(self, item: Any) -> dict[str, str]:
        mounts, value = _fields(item, *("mounts", "value"))
        if not isinstance(value, str) or "\r" in value:
            raise NotShown
        return {"mounts": names_show(mounts), "value": value}

    def write_item(self, item: JSON, values: Mapping[str, str]) -> JSON:
        mounts = [path.strip() for path in values["mounts"].split(",") if path.strip()]
        return item | {"mounts": mounts, "value": values["value"]}


class Drives(Rows):
    name, title, one = "drives", "Drives", "drive"
    place = ("spec", "task_template", "datavolume_refs")
    about = "Drives of the workspace, mounted into every worker."
    columns = (
        Column("name", "Drive", "choice"),
        Column("mount_path", "Path in every worker", "text", "Such as /data"),
        Column("read_only", "Use", "choice", options=(("", "read only"), ("write", "read and write"))),
    )

    def normal(self, item: JSON) -> JSON:
        return {
            key: value for key, value in super().normal(item).items() if (key, value) != ("read_only", True)
        }

    def show_item(self, item: Any) -> dict[str, str]:
        name, path = (text_show(value) for value in _fields(item, "name", "mount_path"))
        if not isinstance(item.get("read_only", True), bool):
            raise NotShown
        return {"name": name, "mount_path": path, "read_only": "" if item.get("read_only", True) else "write"}

    def write_item(self, item: JSON, values: Mapping[str, str]) -> JSON:
        rest = {key: value for key, value in item.items() if key not in {"name", "mount_path", "read_only"}}
        only = {"read_only": False} if values["read_only"] else {}
        return _given(name=values["name"].strip(), mount_path=values["mount_path"].strip()) | only | rest


class Secrets(Rows):
    name, title, one = "secrets", "Secrets", "secret"
    place = ("spec", "task_template", "secret_refs")
    about = "Secrets of the workspace, as variables or files; masked in logs."
    columns = (
        Column("name", "Secret", "choice"),
        Column(
            "target",
            "Variable or path",
            "text",
            "Such as HF_TOKEN, or /run/secrets/hf for a file",
            fields=("env", "mount_path"),
        ),
    )

    def show_item(self, item: Any) -> dict[str, str]:
        name, env, path = (text_show(value) for value in _fields(item, "name", "env", "mount_path"))
        if env and path:
            raise NotShown
        return {"name": name, "target": env or path}

    def write_item(self, item: JSON, values: Mapping[str, str]) -> JSON:
        rest = {key: value for key, value in item.items() if key not in {"name", "env", "mount_path"}}
        target = values["target"].strip()
        as_file = target.startswith("/")
        return _given(name=values["name"].strip(), **{"mount_path" if as_file else "env": target}) | rest


ROWS: tuple[Rows, ...] = (Files(), Drives(), Secrets())
