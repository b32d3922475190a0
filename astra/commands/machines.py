"""Machines: looking at them, and what owners and operators do with them."""

from typing import Annotated, Any

import typer

from astra.commands.options import Cluster, MachineName, Output, Workspace, connect, examples
from astra.states import MachineState

MAIN = "main"
Reason = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Shown wherever the machine is.")
]


def machines(
    state: Annotated[
        list[MachineState] | None,
        typer.Option("--state", case_sensitive=False, help="Only machines in this state; may be repeated."),
    ] = None,
    pool: Annotated[str | None, typer.Option("--pool", metavar="POOL", help="Only machines of it.")] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="K=V", help="Only machines with it; may be repeated."),
    ] = None,
    cluster: Cluster = MAIN,
    output: Output = None,
    workspace: Workspace = None,
) -> None:
    """List a cluster's machines."""
    from astra.describe import machine_lines
    from astra.output import emit, say

    asked: dict[str, str | list[str]] = {
        "state": ",".join(state or ()),
        "pool": pool or "",
        "label": label or [],
    }
    with connect(workspace) as client:
        found = list(client.machines(cluster, {name: value for name, value in asked.items() if value}))
    if output:
        emit({"items": found}, output)
    else:
        say("\n".join(machine_lines(found)))


def machine(
    name: MachineName, cluster: Cluster = MAIN, output: Output = None, workspace: Workspace = None
) -> None:
    """Show a machine: state, GPUs with health and holder, RDMA ports, where it is."""
    from astra.describe import machine_description
    from astra.output import emit, say

    with connect(workspace) as client:
        found = client.machine_get(cluster, name)
    if output:
        emit(found, output)
    else:
        say("\n".join(machine_description(found)))


def cordon(
    name: MachineName, reason: Reason = None, cluster: Cluster = MAIN, workspace: Workspace = None
) -> None:
    """Keep new work off a machine; what runs there goes on."""
    _act(name, "cordon", {"reason": reason} if reason else {}, "cordoned", cluster, workspace)


def uncordon(name: MachineName, cluster: Cluster = MAIN, workspace: Workspace = None) -> None:
    """Let new work land on a machine again."""
    _act(name, "uncordon", {}, "uncordoned", cluster, workspace)


def drain(
    name: MachineName,
    reason: Reason = None,
    within: Annotated[
        str | None, typer.Option("--within", metavar="DURATION", help="Workers may go on for so long: 30m.")
    ] = None,
    cluster: Cluster = MAIN,
    workspace: Workspace = None,
) -> None:
    """Keep new work off a machine and send its runs back to the queue."""
    from astra.typed import read_quantity
    from wire.quantities import parse_duration

    body: dict[str, Any] = {"reason": reason} if reason else {}
    if within is not None:
        body["within_seconds"] = read_quantity(parse_duration, within, "--within")
    _act(name, "drain", body, "draining", cluster, workspace)


def _act(
    name: str, action: str, body: dict[str, Any], done: str, cluster: str, workspace: str | None
) -> None:
    from astra.output import say

    with connect(workspace) as client:
        client.machine_act(cluster, name, action, body)
    say(f"{name} {done}")


def label(
    name: MachineName,
    changes: Annotated[
        list[str], typer.Argument(metavar="KEY=VALUE|KEY-...", help="Set a label; `KEY-` removes it.")
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Tell what it would do; change nothing.")
    ] = False,
    cluster: Cluster = MAIN,
    workspace: Workspace = None,
) -> None:
    """Set or remove labels of a machine, such as its rack."""
    from astra.explanation import sentence
    from astra.output import Format, emit, say

    labels = dict(_label(text) for text in changes)
    with connect(workspace) as client:
        answer = client.machine_change(cluster, name, {"metadata": {"labels": labels}}, dry_run=dry_run)
    if not dry_run:
        say(f"{name} labelled")
    elif text := sentence(answer):
        say(text)
    else:
        emit(answer, Format.JSON)


def _label(text: str) -> tuple[str, str | None]:
    from astra.documents import pair
    from astra.errors import UsageError

    if "=" in text:
        return pair(text, "label")
    if text.endswith("-") and len(text) > 1:
        return text[:-1], None
    raise UsageError(f"label takes KEY=VALUE or KEY-, not “{text}”.")


def register(app: typer.Typer) -> None:
    app.command(
        epilog=examples(
            "astra astraeus machines",
            "astra astraeus machines --state Cordoned --state Draining",
            "astra astraeus machines -o json | jq '.items[].status'",
        )
    )(machines)
    app.command(epilog=examples("astra astraeus machine gpu-01"))(machine)
    app.command(epilog=examples('astra astraeus cordon gpu-04 --reason "changing a cable"'))(cordon)
    app.command(epilog=examples("astra astraeus uncordon gpu-04"))(uncordon)
    app.command(epilog=examples("astra astraeus drain gpu-04 --within 30m"))(drain)
    app.command(
        epilog=examples(
            "astra astraeus label gpu-04 topology.astraeus.io/rack=r7",
            "astra astraeus label gpu-04 topology.astraeus.io/rack- --dry-run",
        )
    )(label)
