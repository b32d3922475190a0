"""Slurm's hostlists: `gpu-[01-02,07],login` for gpu-01, gpu-02, gpu-07 and login.

Brackets are written at the end of a name only: that is where every reader of hostlists understands them.
"""

import re
from collections.abc import Sequence
from itertools import groupby
from typing import Final, NamedTuple

_MAX_DIGITS: Final = 18

_NUMBERED = re.compile(rf"(.*[^0-9])([0-9]{{1,{_MAX_DIGITS}}})", re.ASCII)


class _Host(NamedTuple):
    """`prefix` is the whole name, and `digits` empty, where it has no number at its end."""

    prefix: str
    digits: str

    def follows(self, other: "_Host") -> bool:
        """True when Slurm, counting on from `other` with its width, writes this host next."""
        return self.digits == str(int(other.digits) + 1).zfill(len(other.digits))


def compress(hosts: Sequence[str]) -> str:
    """The hostlist of `hosts` in their order; names that differ only in the number at the end share it."""
    split = [_split(host) for host in hosts]
    numbered = enumerate(split)
    # A name without a number gets a key of its own, so it never joins its neighbour.
    groups = groupby(numbered, key=lambda item: (item[1].prefix, -1 if item[1].digits else item[0]))
    return ",".join(_written([host for _, host in group]) for _, group in groups)


def _split(host: str) -> _Host:
    match = _NUMBERED.fullmatch(host)
    return _Host(match[1], match[2]) if match else _Host(host, "")


def _written(group: list[_Host]) -> str:
    prefix = group[0].prefix
    if len(group) == 1:
        return prefix + group[0].digits
    runs: list[list[_Host]] = []
    for host in group:
        if runs and host.follows(runs[-1][-1]) and _same_width(runs[-1][0], host):
            runs[-1].append(host)
        else:
            runs.append([host])
    parts = [run[0].digits if len(run) == 1 else f"{run[0].digits}-{run[-1].digits}" for run in runs]
    return f"{prefix}[{','.join(parts)}]"


def _same_width(first: _Host, last: _Host) -> bool:
    # 09-10 keeps its width and 9-10 has none; 99-100 after a 09 would have to lose the zero it began with.
    return len(first.digits) == len(last.digits) or not first.digits.startswith("0")
