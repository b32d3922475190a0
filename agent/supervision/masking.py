"""Secrets taken out of a worker's output before it reaches the disk: what is never written can't be shipped."""

STARS = b"***"


class Masker:
    """Replaces every occurrence of the values, overlapping ones by one "***", however the output is cut up.

    `feed` holds back an end that may be the beginning of a value, until more comes or `rest` asks for it.
    """

    def __init__(self, values: list[bytes]) -> None:
        self._values = sorted({value for value in values if value}, key=len, reverse=True)
        self._held = b""
        self._hidden = 0  # so many bytes at the head of `_held` have been told as "***" already

    def feed(self, data: bytes) -> bytes:
        text = self._held + data
        return self._take(text, len(text) - self._beginning(text))

    def rest(self) -> bytes:
        return self._take(self._held, len(self._held))

    def _take(self, text: bytes, end: int) -> bytes:
        """`text` up to `end`, masked; the rest is held."""
        shown, position = b"", self._hidden
        for first, last in self._found(text):
            if first >= end:
                break
            if first >= position:  # else it overlaps what has been told
                shown += text[position:first] + STARS
            position = max(position, last)
        self._held, self._hidden = text[end:], max(0, position - end)
        return shown + text[position:end]

    def _found(self, text: bytes) -> list[tuple[int, int]]:
        """Where values stand, overlapping ones joined."""
        found = sorted(span for value in self._values for span in _spans(text, value))
        joined: list[tuple[int, int]] = []
        for first, last in found:
            if joined and first < joined[-1][1]:
                joined[-1] = (joined[-1][0], max(joined[-1][1], last))
            else:
                joined.append((first, last))
        return joined

    def _beginning(self, text: bytes) -> int:
        """Length of the longest end of `text` with which a value begins."""
        return max((_overlap(text, value) for value in self._values), default=0)


def _spans(text: bytes, value: bytes) -> list[tuple[int, int]]:
    spans, at = [], text.find(value)
    while at >= 0:
        spans.append((at, at + len(value)))
        at = text.find(value, at + 1)
    return spans


def _overlap(text: bytes, value: bytes) -> int:
    at = text.find(value[:1], max(0, len(text) - len(value) + 1))
    while at >= 0:
        if value.startswith(text[at:]):
            return len(text) - at
        at = text.find(value[:1], at + 1)
    return 0


def masked(text: bytes, values: list[bytes]) -> bytes:
    masker = Masker(values)
    return masker.feed(text) + masker.rest()
