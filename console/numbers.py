"""Numbers in addresses and forms, as anybody may write them."""

LARGEST = 2**62
_DIGITS = 19


def number_read(text: str, most: int = LARGEST) -> int | None:
    """The number from 0 to `most` (at most LARGEST) that the digits stand for; None for anything else.

    Python refuses, with an exception, to read numbers of thousands of digits.
    """
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
        return None
    value = int(text)
    return value if value <= most else None
