"""Numbers and lists in words, as every page, the API and `astra` write them."""

from collections.abc import Sequence

_GIB = 1 << 30
TOLD_IN_FULL = 3
"""So many names (machines, domains, shapes) stand in a sentence; of more, the first two and a number."""


def plural(count: int, noun: str) -> str:
    """ "1 machine", "2 machines"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def capitalized(text: str) -> str:
    """As a sentence begins; unlike `str.capitalize` the rest stays as it is: names in it may be of capitals."""
    return text[:1].upper() + text[1:]


def and_list(names: Sequence[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    *others, last = names or [""]
    return f"{', '.join(others)} and {last}" if others else last


def shortened(names: Sequence[str], count: int | None = None) -> str:
    """At most three names; of more the first two and how many are left. `count`: of how many these are the first."""
    count = len(names) if count is None else count
    if count <= TOLD_IN_FULL:
        return ", ".join(names)
    return f"{names[0]}, {names[1]} and {count - 2:,} more"


def gib(size: int) -> str:
    """Bytes in GiB, one decimal at most; in MiB below one GiB."""
    if 0 < size < _GIB:
        return f"{size / (1 << 20):,.0f} MiB"
    text = f"{size / _GIB:,.1f}"
    return f"{text.removesuffix('.0')} GiB"


def cores(millicores: int, *, unit: bool = True) -> str:
    """ "96 cores", "1 core", "0.5 cores"."""
    count = f"{millicores / 1000:,.3f}".rstrip("0").rstrip(".")
    if not unit:
        return count
    return f"{count} core" if count == "1" else f"{count} cores"


def models(names: Sequence[str], count: int) -> str:
    """ "H100s", "H100", "A100 or H100 GPUs", "GPUs"."""
    if len(names) == 1:
        return names[0] if count == 1 else f"{names[0]}s"
    kinds = f"{' or '.join(names)} " if names else ""
    return f"{kinds}GPU" if count == 1 else f"{kinds}GPUs"


def gpu_names(indices: Sequence[int]) -> str:
    """ "GPU 5", "GPUs 5 and 7"."""
    numbers = and_list([str(index) for index in indices])
    return f"GPU {numbers}" if len(indices) == 1 else f"GPUs {numbers}"


def gpus_free(free: int, total: int) -> str:
    """ "4 of 8 GPUs free"."""
    return f"{free} of {total} {'GPU' if total == 1 else 'GPUs'} free"
