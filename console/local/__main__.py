"""`python -m console.local COMMAND`: what `./dev` hands over to once Python and the packages are there."""

import sys
from collections.abc import Sequence

from console.local.errors import LocalError


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
    # Each command is imported on its own: what one of them needs must not keep the others from starting.
    if command == "demo":
        from console.local.demo import demo

        return demo(arguments)
    if command == "up":
        from console.local.up import up

        return up(arguments)
    if command == "test":
        from console.local.run_with_services import test

        return test(arguments)
    if command == "bench":
        from console.local.run_with_services import bench

        return bench(arguments)
    if command == "screenshots":
        from console.local.screenshots import screenshots

        return screenshots(arguments)
    if command == "lint":
        from console.local.lint import lint

        return lint()
    if command == "docs":
        from console.local.docs import docs

        return docs()
    raise LocalError(f"There is no command {command!r}; ./dev help lists them.")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
