"""Says at the end how much the properties were tried: a deep run that looked at little must be seen to."""

import time

import pytest

from tests.placement.examples import Checked

BEGAN = time.monotonic()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if Checked.cases:
        seconds = time.monotonic() - BEGAN
        terminalreporter.write_line(f"{Checked.cases:,} random cases of placement held, in {seconds:.0f} s.")
