"""Values of a run document by their place. The document may be wrong anywhere."""

import json
from collections.abc import Mapping
from typing import Any, Final

from wire.spec.errors import Location
from wire.spec.fields import field_at

JSON = dict[str, Any]


class _Missing:
    """There is no value: the field was not given."""

    def __bool__(self) -> bool:
        return False


MISSING: Final = _Missing()


class Blocked(Exception):
    """Something on the way to a place is no object."""


def value_at(document: Any, place: Location) -> Any:
    """The value; MISSING where there is none, null, or something on the way is no object."""
    for step in place:
        if not isinstance(document, dict):
            return MISSING
        document = document.get(str(step))
    return MISSING if document is None else document


def value_set(document: JSON, place: Location, value: Any) -> None:
    """Sets the value, with the objects on the way to it; MISSING takes the field away. Raises Blocked."""
    if value is MISSING:
        _drop(document, place)
        return
    *way, last = map(str, place)
    for step in way:
        if document.get(step) is None:
            document[step] = {}
        document = document[step]
        if not isinstance(document, dict):
            raise Blocked
    document[last] = value


def _drop(document: JSON, place: Location) -> None:
    """Objects that become empty by this go, too: without fields they say nothing, or something else."""
    holder = value_at(document, place[:-1])
    if isinstance(holder, dict) and holder.pop(str(place[-1]), None) is not None and not holder and place[1:]:
        _drop(document, place[:-1])


def reachable(document: Any, place: Location) -> bool:
    """Whether the objects on the way to a place are objects, or not there."""
    return all(isinstance(value_at(document, place[:n]) or {}, dict) for n in range(len(place)))


def default_at(place: Location) -> Any:
    """What counts where the field is not given; MISSING where nothing does."""
    field = field_at(place)
    value = None if field is None or field.is_required() else field.get_default(call_default_factory=True)
    if isinstance(value, tuple):
        return list(value)
    return MISSING if value is None else value


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are one and the same: 1, 1.0 and true are three."""
    if one is MISSING or other is MISSING:
        return one is other
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def patched(document: Any, patch: Any) -> Any:
    """The document after a JSON merge patch (RFC 7396)."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(document) if isinstance(document, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = patched(merged.get(key), value)
    return merged
