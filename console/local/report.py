"""What `./dev demo` and `./dev up` print: each step with its seconds, colours only on a terminal."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from rich.console import Console
from rich.text import Text


@dataclass
class Report:
    """Lines that begin with the seconds since the command started."""

    out: Console = field(default_factory=lambda: Console(highlight=False, soft_wrap=True))
    started: float = field(default_factory=time.monotonic)
    marks: dict[str, float] = field(default_factory=dict)
    results: list[str] = field(default_factory=list)  # the lines a person came for

    def line(self, text: str, style: str = "") -> None:
        stamp = f"{time.monotonic() - self.started:6.1f} s  "
        # Text objects: what a worker's log or a machine's name contains is never taken for markup.
        self.out.print(Text.assemble((stamp, "dim"), (text, style)))

    def mark(self, what: str) -> None:
        """Notes that this has been reached; only the first time counts."""
        self.marks.setdefault(what, time.monotonic() - self.started)

    @contextlib.contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Prints `what` with the seconds it took, when it is done."""
        begun = time.monotonic()
        yield
        self.line(f"{what} ({time.monotonic() - begun:.1f} s)")
        self.mark(what)

    def heading(self, text: str) -> None:
        self.out.print(Text(f"\n{text}", style="bold"))

    def fact(self, name: str, value: str, style: str = "") -> None:
        self.out.print(Text.assemble((f"  {name:<12}", "dim"), (value, style)))

    def timeline(self) -> None:
        """All marks in order, with the seconds since the mark before."""
        self.heading("Time")
        before = 0.0
        for what, at in sorted(self.marks.items(), key=lambda item: item[1]):
            self.out.print(Text(f"{at:8.1f} s  +{at - before:5.1f} s  {what}"))
            before = at
