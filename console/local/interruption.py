"""Ctrl-C, SIGTERM and SIGHUP: the first ends what is going on, in order; the next one hurries the end."""

import signal
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_state = {"ending": False, "hurried": False}


class Interrupted(BaseException):
    """Raised in the main thread at the first signal; no `except Exception` on the way swallows it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    @property
    def status(self) -> int:
        """The exit status a shell shows for a process that such a signal ended."""
        return 128 + self.number


def install() -> None:
    for number in SIGNALS:
        signal.signal(number, _on_signal)


def _on_signal(number: int, _frame: FrameType | None) -> None:
    if _state["ending"]:
        _state["hurried"] = True
        return
    _state["ending"] = True
    raise Interrupted(number)


def begin_end() -> None:
    """From here on a signal no longer interrupts (the clean-up must run through), it only hurries."""
    _state["ending"] = True


def hurried() -> bool:
    """True when the person asked a second time: what has not ended by itself is to be killed now."""
    return _state["hurried"]
