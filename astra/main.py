"""Entry point. All that is heavier is imported inside, so that Ctrl-C is quiet from the first moment."""

import sys

from astra import INTERRUPTED


def main() -> None:
    try:
        from astra.app import app

        app(prog_name="astra")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
