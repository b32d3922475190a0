"""The document as the rules between fields see it: what parsed is there, what didn't raises `Unknown`.

A rule is a generator over one `Node`; it reads what it needs, and where one of these values is broken
itself it ends without a word: the broken value's own error stands in the list already.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from wire.spec.errors import Location
from wire.spec.tree import Problem


class Unknown(Exception):
    """A value that a rule needs is broken itself."""


@dataclass(frozen=True)
class Node:
    """An object of the document and its place; `broken` holds the places that have errors of their own."""

    data: dict[str, Any]
    location: Location
    broken: frozenset[Location]

    def at(self, *steps: str | int) -> Location:
        """The place of something below this object."""
        return (*self.location, *steps)

    def has(self, *keys: str) -> bool:
        """True when one of the fields was given, even if its value is broken."""
        return any(self.data.get(key) is not None or self.at(key) in self.broken for key in keys)

    def value(self, key: str, default: Any = None) -> Any:
        """The field's value, `default` when it was not given or null."""
        if self.at(key) in self.broken:
            raise Unknown
        found = self.data.get(key)
        return default if found is None else found

    def node(self, key: str) -> "Node":
        """The object in the field; an empty one when it was not given."""
        return Node(self.value(key, {}), self.at(key), self.broken)

    def nodes(self, key: str) -> list["Node"]:
        """The sound objects of a list; their `location` has the index."""
        return [Node(item, self.at(key, index), self.broken) for index, item in self.items(key)]

    def items(self, key: str) -> list[tuple[int, Any]]:
        """(index, item) of the sound items of a list."""
        values = enumerate(self.value(key, []))
        return [(index, item) for index, item in values if self.at(key, index) not in self.broken]


Rule = Callable[[Node], Iterator[Problem]]


def apply(rules: Iterable[Rule], node: Node) -> Iterator[Problem]:
    """The findings of all rules; one that meets a broken value keeps what it found before."""
    for rule in rules:
        try:
            yield from rule(node)
        except Unknown:
            continue
