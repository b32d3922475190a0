"""What the models say about a place in the document: its field, its bounds, where a name belongs."""

import types
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from typing import Annotated, Any, Literal, TypeGuard, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from wire.names import shown
from wire.spec.base import Part
from wire.spec.document import RunDocument
from wire.spec.errors import Location, format_path

ANY_ITEM = "*"
_LONGEST_GUESS = 64  # comparing longer texts costs much and suggests nothing sensible
_CLOSE = 0.7


def type_at(location: Location) -> Any:
    """The annotation at `location`: a Part, `str`, a tuple, …; None where the document has no such place."""
    annotation: Any = RunDocument
    for step in location:
        annotation = _child(annotation, step)
    return annotation


def _child(annotation: Any, step: str | int) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, Part):
        found = annotation.model_fields.get(str(step))
        return _bare(found.annotation) if found else None
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is tuple and (isinstance(step, int) or step == ANY_ITEM):
        return _bare(arguments[0])
    if origin is dict:
        return _bare(arguments[1])
    return None


def _bare(annotation: Any) -> Any:
    """Without `Annotated[…]` and `… | None`."""
    if get_origin(annotation) is Annotated:
        return _bare(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        (inner,) = (argument for argument in get_args(annotation) if argument is not type(None))
        return _bare(inner)
    return annotation


def is_part(annotation: Any) -> TypeGuard[type[Part]]:
    """True for one of the document's objects."""
    return isinstance(annotation, type) and issubclass(annotation, Part)


def is_map(annotation: Any) -> bool:
    """True for a map from names to values, such as `env`."""
    return get_origin(annotation) is dict


def field_at(location: Location) -> FieldInfo | None:
    """The field whose value stands at `location`; None for items of lists and maps."""
    owner = type_at(location[:-1]) if location else None
    return owner.model_fields.get(str(location[-1])) if is_part(owner) else None


def bounds(field: FieldInfo | None) -> tuple[int | None, int | None]:
    """(least, most) of a number's field."""
    metadata = field.metadata if field else []
    least = next((item.ge for item in metadata if hasattr(item, "ge")), None)
    most = next((item.le for item in metadata if hasattr(item, "le")), None)
    return least, most


def choices(location: Location) -> tuple[str, ...]:
    """The values allowed at a place that has a fixed list of them."""
    annotation = type_at(location)
    return get_args(annotation) if get_origin(annotation) is Literal else ()


def called(location: Location) -> str:
    """What a message calls the value at `location`: its field's name, with index or key behind it."""
    start = len(location) - 1
    while start > 0 and not is_part(type_at(location[:start])):
        start -= 1
    return shown(format_path(location[start:])) if location else "The document"


def close_to(word: str, words: list[str], cutoff: float = _CLOSE) -> str | None:
    """The one of `words` that `word` was probably meant to be; upper and lower case don't matter."""
    if len(word) > _LONGEST_GUESS:
        return None
    by_lower = {candidate.lower(): candidate for candidate in words}
    matches = get_close_matches(word.lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[matches[0]] if matches else None


def unknown_field_sentence(location: Location) -> str:
    """Why the field at `location` is refused, and which one was probably meant."""
    name, owner = str(location[-1]), location[:-1]
    here = list(type_at(owner).model_fields) if is_part(type_at(owner)) else []
    start = f"{shown(name)} is not a field here"
    if home := _nearest_home(name, owner):
        return f"{start}; it belongs {home}."
    if near := close_to(name, here):
        return f"{start}; did you mean `{near}`?"
    if elsewhere := close_to(name, list(_homes()), cutoff=0.85):
        return f"{start}; did you mean `{elsewhere}` {_nearest_home(elsewhere, owner)}?"
    return f"{start}. Fields here: {', '.join(f'`{field}`' for field in here)}."


def _nearest_home(name: str, owner: Location) -> str | None:
    """The object nearest to `owner` that has a field `name`, as a message writes it."""
    homes = [_in_same_group(home, owner) for home in _homes().get(name, ())]
    if not homes:
        return None
    # A word such as `name` stands in many lists too; those are the least likely to be meant.
    nearest = max(homes, key=lambda home: (ANY_ITEM not in home, _shared(home, owner), -len(home)))
    path = format_path(nearest).replace(f'["{ANY_ITEM}"]', "[]")
    return f"in `{path}`" if nearest else "at the top of the document"


def _in_same_group(home: Location, owner: Location) -> Location:
    """`home` inside the worker group that `owner` is in; homes are listed for `spec.task_template`."""
    template = ("spec", "task_template")
    if owner[:2] == ("spec", "worker_groups") and home[:2] == template and len(owner) > len(template):
        return (*owner[:3], "task_template", *home[2:])
    return home


def _shared(one: Location, other: Location) -> int:
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count


@cache
def _homes() -> dict[str, tuple[Location, ...]]:
    """Field name → places of the objects that have it, templates inside worker groups left out."""
    homes: dict[str, tuple[Location, ...]] = {}
    for place, model in objects((), RunDocument):
        for name in model.model_fields:
            homes[name] = (*homes.get(name, ()), place)
    return homes


def objects(place: Location, annotation: Any) -> Iterator[tuple[Location, type[Part]]]:
    """(place, model) of every object at and below `place`; `ANY_ITEM` stands for a list's index."""
    if get_origin(annotation) is tuple:
        yield from objects((*place, ANY_ITEM), _child(annotation, ANY_ITEM))
    elif is_part(annotation):
        yield place, annotation
        for name in annotation.model_fields:
            if place[:2] != ("spec", "worker_groups") or name != "task_template":
                yield from objects((*place, name), _child(annotation, name))
