"""Which names are names: runs, workers, groups, machines, labels, variables.

Every `check_…` function returns the text it was given or raises `BadName` with a sentence for its author.
The patterns stand beside them because the JSON Schema shows the same rule to the editor.
"""

import re
from collections.abc import Iterable

MAX_RUN_NAME = 52  # leaves room for `-` and a worker's index inside the 63 characters of a DNS label
MAX_DNS_LABEL = 63
MAX_DNS_NAME = 253
MAX_LABELS = 64
MAX_ENV_NAME = 255

DNS_LABEL_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DNS_NAME_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
LABEL_NAME_PATTERN = r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
LABEL_KEY_PATTERN = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
)
LABEL_VALUE_PATTERN = r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"
ENV_NAME_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*$"

# Characters that reorder the text around them: a name may not look like another one.
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_LINE_BREAKS = frozenset("\u0085\u2028\u2029")
_REPLACED = dict.fromkeys(
    [*{*range(0x20), *range(0x7F, 0xA0)} - {ord("\t"), ord("\n")}, *map(ord, _BIDI | _LINE_BREAKS)], "\ufffd"
)

_DNS_LABEL_RULE = (
    "lower-case letters, digits and `-`, with a letter or a digit at the beginning and at the end"
)
_LABEL_RULE = "letters, digits, `-`, `_` and `.`, with a letter or a digit at the beginning and at the end"


class BadName(ValueError):
    """A name that is none; the message says what is wrong and how a right one looks."""


def shown(text: str, limit: int = 60) -> str:
    """`text` in backticks for a message: cut to `limit` characters, nothing invisible left in it."""
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    visible = "".join(c if c.isprintable() and c not in _BIDI else f"\\u{ord(c):04x}" for c in cut)
    return f"`{visible}`"


def has_control_characters(text: str) -> bool:
    """True when `text` has control characters, line breaks or marks that change the writing direction."""
    return any(c < " " or "\x7f" <= c < "\xa0" or c in _BIDI or c in _LINE_BREAKS for c in text)


def plain_text(text: str) -> str:
    """`text` with a replacement character for every one that moves the cursor or turns the text around it."""
    return text.translate(_REPLACED)


def check_line(text: str) -> str:
    """One line of ordinary characters, not empty."""
    if not text.strip():
        raise BadName("This is empty. Give a value, or leave the field out.")
    if has_control_characters(text):
        raise BadName(
            f"{shown(text)} has control characters, line breaks or marks that change the writing direction. "
            "Remove them."
        )
    return text


def check_dns_label(text: str, limit: int = MAX_DNS_LABEL) -> str:
    """A DNS label of at most `limit` characters: runs, groups, clusters, pools, drives, secrets."""
    if not re.fullmatch(DNS_LABEL_PATTERN[1:-1], text):
        raise BadName(f"{shown(text)} is not a name. Use {_DNS_LABEL_RULE}.")
    if len(text) > limit:
        raise BadName(f"{shown(text)} has {len(text)} characters. Use at most {limit}.")
    return text


def check_slug(text: str) -> str:
    """A cluster, pool, organization or workspace: a DNS label, as it stands in addresses."""
    return check_dns_label(text)


def check_run_name(text: str) -> str:
    """A run's name: workers are called after it, so it is shorter than a DNS label may be."""
    return check_dns_label(text, MAX_RUN_NAME)


def check_machine_name(text: str) -> str:
    """A machine: one or several DNS labels joined by dots, as its host name is."""
    if not re.fullmatch(DNS_NAME_PATTERN[1:-1], text):
        raise BadName(f"{shown(text)} is not a machine's name. Use {_DNS_LABEL_RULE}; dots may join parts.")
    if len(text) > MAX_DNS_NAME or any(len(part) > MAX_DNS_LABEL for part in text.split(".")):
        raise BadName(
            f"{shown(text)} is too long. Use at most {MAX_DNS_LABEL} characters between two dots "
            f"and {MAX_DNS_NAME} in all."
        )
    return text


def check_label_key(text: str) -> str:
    """A label's key in Kubernetes syntax: an optional DNS prefix and `/`, then a name of at most 63."""
    prefix, slash, name = text.rpartition("/")
    if slash:
        try:
            check_machine_name(prefix)
        except BadName:
            raise BadName(
                f"{shown(text)} is not a label's key: {shown(prefix)} before the `/` must be a DNS name such "
                f"as "
                "`topology.astraeus.io`."
            ) from None
    if not re.fullmatch(LABEL_NAME_PATTERN[1:-1], name) or len(name) > MAX_DNS_LABEL:
        raise BadName(
            f"{shown(text)} is not a label's key. Use at most {MAX_DNS_LABEL} characters: {_LABEL_RULE}."
        )
    return text


def check_label_value(text: str) -> str:
    """A label's value in Kubernetes syntax; it may be empty."""
    if not re.fullmatch(LABEL_VALUE_PATTERN[1:-1], text) or len(text) > MAX_DNS_LABEL:
        raise BadName(
            f"{shown(text)} is not a label's value. Use at most {MAX_DNS_LABEL} characters: {_LABEL_RULE}."
        )
    return text


def check_env_name(text: str) -> str:
    """An environment variable's name as POSIX shells accept it."""
    if not re.fullmatch(ENV_NAME_PATTERN[1:-1], text):
        raise BadName(
            f"No shell accepts {shown(text)} as a variable's name. Use letters, digits and `_`, "
            "and no digit at the beginning."
        )
    if len(text) > MAX_ENV_NAME:
        raise BadName(f"{shown(text)} has {len(text)} characters. Use at most {MAX_ENV_NAME}.")
    return text


def worker_name(run: str, group: str, index: int) -> str:
    """`<run>-<index>` in a run of one unnamed group (`group` is ""), `<run>-<group>-<index>` otherwise."""
    return f"{run}-{group}-{index}" if group else f"{run}-{index}"


def worker_names(run: str, groups: Iterable[tuple[str, int]]) -> tuple[str, ...]:
    """Names in rank order; `groups` holds (name or "", number of machines), in the document's order."""
    return tuple(worker_name(run, group, index) for group, machines in groups for index in range(machines))
