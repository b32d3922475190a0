"""The command line `astraeus-agent`."""

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from agent import VERSION
from agent.config import DOCKER_SOCKET, ConfigError, config_read, state_default
from wire.mesh import LISTEN_PORT

DESCRIPTION = "Runs this machine's workers for an Astraeus console."


def main(argv: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done, 1 refused or failed, 2 wrong usage."""
    arguments = _parser().parse_args(argv)
    _log_to_stderr(verbose=arguments.verbose)
    commands = {"join": _join, "run": _run, "check": _check, "inventory": _inventory}
    return commands[arguments.command](arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="astraeus-agent", description=DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"astraeus-agent {VERSION}")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--state-dir",
        type=Path,
        default=state_default(),
        help="where the agent keeps its state (%(default)s)",
    )
    common.add_argument("--verbose", action="store_true", help="log more")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _join_arguments(
        commands.add_parser("join", parents=[common], help="make this machine one of a console's")
    )
    commands.add_parser("run", parents=[common], help="work, until SIGTERM; workers go on without the agent")
    check = commands.add_parser("check", parents=[common], help="say what is missing on this machine")
    check.add_argument("--json", action="store_true", help="as JSON")
    inventory = commands.add_parser("inventory", parents=[common], help="say what this machine has")
    inventory.add_argument("--json", action="store_true", help="as JSON, as the console is told")
    inventory.add_argument(
        "--record", type=Path, metavar="DIR", help="also write down where it comes from, in DIR"
    )
    return parser


def _join_arguments(join: argparse.ArgumentParser) -> None:
    join.add_argument("--server", required=True, metavar="URL", help="the console's address")
    join.add_argument("--token", required=True, help="a join token, from the page Machines, Add a machine")
    join.add_argument("--name", help="the machine's name (its host name)")
    join.add_argument(
        "--runtime", choices=("docker", "bubblewrap"), default="bubblewrap", help="(%(default)s)"
    )
    join.add_argument("--simulate", type=Path, metavar="FILE", help="pretend to have the inventory in FILE")
    join.add_argument("--address", help="what other machines reach this one by (its route to the console)")
    join.add_argument(
        "--no-mesh",
        action="store_false",
        dest="mesh",
        help="keep the machine off the mesh: its containers share its network",
    )
    join.add_argument(
        "--mesh-port",
        type=int,
        default=LISTEN_PORT,
        metavar="PORT",
        help="UDP port on which other machines reach this one's mesh (%(default)s)",
    )
    join.add_argument(
        "--mesh-endpoint",
        metavar="ADDRESS:PORT",
        help="where they find it, or `none` where they can't (its address and --mesh-port)",
    )
    join.add_argument(
        "--hide",
        type=Path,
        action="append",
        default=[],
        metavar="PATH",
        help="keep PATH from workers (repeatable)",
    )
    join.add_argument(
        "--drive-root",
        type=Path,
        action="append",
        default=[],
        metavar="PATH",
        help="let drives lie below PATH (repeatable)",
    )
    join.add_argument(
        "--gpu",
        action="append",
        default=[],
        metavar="UUID",
        help="offer this GPU and no other that isn't named too (repeatable; all of them)",
    )
    join.add_argument(
        "--docker-socket",
        default=DOCKER_SOCKET,
        metavar="PATH",
        help="of the Docker engine, with --runtime docker (%(default)s)",
    )
    join.add_argument("--run", action="store_true", help="go on as `run`")


def _join(arguments: argparse.Namespace) -> int:
    from agent.join import JoinError, Joining, join

    joining = Joining(
        server=arguments.server,
        token=arguments.token,
        state=arguments.state_dir,
        name=arguments.name,
        runtime=arguments.runtime,
        simulate=arguments.simulate,
        address=arguments.address,
        mesh=arguments.mesh,
        mesh_port=arguments.mesh_port,
        mesh_endpoint=arguments.mesh_endpoint,
        hide=tuple(arguments.hide),
        drive_roots=tuple(arguments.drive_root),
        gpus=tuple(arguments.gpu),
        docker_socket=arguments.docker_socket,
    )
    try:
        config = join(joining)
    except JoinError as error:
        return _failed(str(error))
    print(f"{config.name} joined cluster {config.cluster}")  # noqa: T201 - the command's answer
    if arguments.run:
        return _run(arguments)
    print(f"Start it with: astraeus-agent run --state-dir {config.state}")  # noqa: T201 - so is this
    return 0


def _run(arguments: argparse.Namespace) -> int:
    from agent.daemon import agent_run

    try:
        agent_run(config_read(arguments.state_dir))
    except ConfigError as error:
        return _failed(str(error))
    return 0


def _check(arguments: argparse.Namespace) -> int:
    from agent.check import check, checks_json, checks_table

    checks = check(arguments.state_dir)
    print((checks_json if arguments.json else checks_table)(checks))  # noqa: T201 - the command's answer
    return 1 if any(found.failed for found in checks) else 0


def _inventory(arguments: argparse.Namespace) -> int:
    from agent.show_inventory import inventory_now, inventory_text

    try:
        inventory = inventory_now(arguments.record)
    except OSError as error:
        return _failed(f"{arguments.record} can't be written: {error.strerror}.")
    text = inventory.model_dump_json(indent=2) if arguments.json else inventory_text(inventory)
    print(text)  # noqa: T201 - the command's answer
    return 0


def _failed(message: str) -> int:
    print(f"astraeus-agent: {message}", file=sys.stderr)  # noqa: T201 - for whoever called it
    return 1


class _OneLine(logging.Formatter):
    """Time, level, message; a traceback is folded into its line."""

    def format(self, record: logging.LogRecord) -> str:
        return super().format(record).replace("\n", "\\n")


def _log_to_stderr(*, verbose: bool) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        _OneLine("%(asctime)s.%(msecs)03d %(levelname)s %(name)s %(message)s", "%Y-%m-%dT%H:%M:%S")
    )
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler])
    for noisy in ("httpx", "httpcore"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
