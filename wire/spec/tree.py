"""The document as plain JSON values, before any field is looked at: size, depth, numbers, texts, keys.

What is wrong with a value is noted at its place and the value left out: all else is still checked.
"""

import json
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from wire.names import shown
from wire.spec.errors import Location

MAX_DOCUMENT_BYTES: Final = 2 * 2**20
MAX_DEPTH: Final = 32
MAX_VALUES: Final = 50_000
MAX_WHOLE_NUMBER: Final = 2**63 - 1
# Python refuses to convert very long digits; forty are more than any number allowed here and still convert.
_LONGEST_NUMBER: Final = 40

_TOO_LARGE = (
    f"The document is larger than {MAX_DOCUMENT_BYTES // 2**20} MiB. "
    "Put large files on a drive or into the image."
)


class Problem(NamedTuple):
    """A mistake before it is written down: where, which code, which sentence."""

    location: Location
    code: str
    message: str


class Unreadable(Exception):
    """The text is no JSON document at all; `problem` says why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.problem = Problem((), code, message)


class _Object(dict[str, Any]):
    """A JSON object that remembers which of its keys stood there more than once."""

    repeated: tuple[str, ...] = ()


def _object(pairs: list[tuple[str, Any]]) -> _Object:
    made = _Object(pairs)
    if len(made) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        made.repeated = tuple(key for key, count in counts.items() if count > 1)
    return made


def read_text(text: bytes | str) -> Any:
    """JSON values of `text`. Raises Unreadable when there is no document to look at."""
    decoded = _decoded(text)
    if not decoded.strip():
        raise Unreadable("not_json", "The document is empty.")
    try:
        return json.loads(
            decoded,
            object_pairs_hook=_object,
            parse_int=lambda digits: int(digits) if len(digits) <= _LONGEST_NUMBER else 2 * MAX_WHOLE_NUMBER,
            parse_constant=float,
        )
    except json.JSONDecodeError as error:
        raise Unreadable(
            "not_json", f"This is not JSON: {error.msg} in line {error.lineno}, column {error.colno}."
        ) from None
    except RecursionError:
        raise Unreadable("too_deep", "The document is nested too deeply.") from None


def _decoded(text: bytes | str) -> str:
    if isinstance(text, str):
        if len(text) > MAX_DOCUMENT_BYTES or len(text.encode(errors="surrogatepass")) > MAX_DOCUMENT_BYTES:
            raise Unreadable("too_large", _TOO_LARGE)
        return text.removeprefix("\ufeff")
    if len(text) > MAX_DOCUMENT_BYTES:
        raise Unreadable("too_large", _TOO_LARGE)
    try:
        # Editors on Windows begin files with a byte order mark.
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unreadable(
            "not_utf8", f"The text is not UTF-8 at byte {error.start + 1}. Save it as UTF-8."
        ) from None


@dataclass
class Tree:
    """A copy of the document's sound values, and the mistakes found on the way."""

    problems: list[Problem] = field(default_factory=list)
    values: int = 0
    text_bytes: int = 0

    def copy(self, value: object, location: Location = ()) -> Any:
        """`value` in plain dicts, lists, texts and numbers; None stands where something is wrong.

        Raises Unreadable when there is too much of it to look at.
        """
        self.values += 1
        if self.values > MAX_VALUES:
            raise Unreadable("too_many_values", f"The document has more than {MAX_VALUES:,} values.")
        if isinstance(value, dict):
            return self._copy_object(value, location) if self._depth_is_fine(location) else None
        if isinstance(value, list):
            if not self._depth_is_fine(location):
                return None
            return [self.copy(item, (*location, index)) for index, item in enumerate(value)]
        return self._copy_scalar(value, location)

    def _depth_is_fine(self, location: Location) -> bool:
        if len(location) < MAX_DEPTH:
            return True
        return self._refuse(
            location, "too_deep", f"Nothing here is nested more than {MAX_DEPTH} levels deep."
        )

    def _refuse(self, location: Location, code: str, message: str) -> bool:
        self.problems.append(Problem(location, code, message))
        return False

    def _copy_object(self, value: dict[Any, Any], location: Location) -> dict[str, Any]:
        for key in getattr(value, "repeated", ()):
            self._refuse(
                (*location, key),
                "duplicate_key",
                f"{shown(key)} stands here more than once. Keep one of them.",
            )
        copied = {}
        for key, item in value.items():
            if not isinstance(key, str):
                self._refuse(location, "not_json", "Keys of an object must be texts.")
            elif self._text_is_fine(key, (*location, key)):
                copied[str(key)] = self.copy(item, (*location, key))
        return copied

    def _copy_scalar(self, value: object, location: Location) -> Any:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return str(value) if self._text_is_fine(value, location) else None
        if isinstance(value, int):
            return int(value) if self._whole_number_is_fine(value, location) else None
        if isinstance(value, float):
            return float(value) if self._number_is_fine(value, location) else None
        self._refuse(
            location,
            "not_json",
            "This is no JSON value: use texts, numbers, true, false, null, lists and objects.",
        )
        return None

    def _text_is_fine(self, text: str, location: Location) -> bool:
        try:
            self.text_bytes += len(text.encode())
        except UnicodeEncodeError:
            return self._refuse(
                location,
                "bad_text",
                "This text has half of a surrogate pair (such as \\ud800), which is no character.",
            )
        if self.text_bytes > MAX_DOCUMENT_BYTES:
            raise Unreadable("too_large", _TOO_LARGE)
        if "\x00" in text:
            return self._refuse(location, "bad_text", "This text has a NUL character (\\u0000). Remove it.")
        return True

    def _whole_number_is_fine(self, number: int, location: Location) -> bool:
        if abs(number) <= MAX_WHOLE_NUMBER:
            return True
        return self._refuse(location, "out_of_range", "This number is too large to be meant.")

    def _number_is_fine(self, number: float, location: Location) -> bool:
        if math.isfinite(number):
            return True
        return self._refuse(
            location, "not_finite", "NaN and infinite numbers are no JSON. Write an ordinary number."
        )
