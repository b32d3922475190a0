"""`python -m console.local COMMAND`: what `./dev` hands over to once Python and the packages are there."""

import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from console.local.errors import LocalError

MODULES = {
    "demo": "console.local.demo",
    "up": "console.local.up",
    "test": "console.local.run_with_services",
    "bench": "console.local.run_with_services",
    "screenshots": "console.local.screenshots",
    "lint": "console.local.lint",
    "docs": "console.local.docs",
}
"""Of each command the module; its function there has the command's name."""


def main(argv: Sequence[str]) -> int:
    command, *arguments = argv
    try:
        return _run(command, arguments)
    except LocalError as error:
        print(f"./dev: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # before a command has taken the signals over, and started anything
        return 130


def _run(command: str, arguments: Sequence[str]) -> int:
    if command not in MODULES:
        raise LocalError(f"There is no command {command!r}; ./dev help lists them.")
    # Each command is imported on its own: what one of them needs must not keep the others from starting.
    run: Callable[[Sequence[str]], int] = getattr(import_module(MODULES[command]), command)
    return run(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
