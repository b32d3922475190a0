"""The FIFO through which supervisors tell the agent what has something new: "state <id>" or "log <id>" a line."""

import logging
import os
import select
import threading
from collections.abc import Callable
from pathlib import Path

from agent.files import fifo_make

log = logging.getLogger(__name__)
_READ_BYTES = 65536


class Events(threading.Thread):
    """Calls `on_state` and `on_log` with assignment ids, each once for what has come in together."""

    def __init__(self, path: Path, on_state: Callable[[str], None], on_log: Callable[[], None]) -> None:
        super().__init__(name="events", daemon=True)
        fifo_make(path)
        # Open for writing too: else every supervisor that ends would leave an end-of-file behind.
        self._descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self._on_state = on_state
        self._on_log = on_log

    def run(self) -> None:
        text = b""
        while True:
            select.select([self._descriptor], [], [])
            try:
                text += os.read(self._descriptor, _READ_BYTES)
            except BlockingIOError:
                continue
            *lines, text = text.split(b"\n")
            self._tell({line.decode(errors="replace") for line in lines})

    def _tell(self, lines: set[str]) -> None:
        try:
            for line in sorted(lines):
                what, _, name = line.partition(" ")
                if what == "state":
                    self._on_state(name)
            if any(line.startswith("log ") for line in lines):
                self._on_log()
        except Exception:
            log.exception("a supervisor's word was lost; the periodic look makes up for it")
