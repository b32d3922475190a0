"""`metrics`: what a run's workers told of their training."""

from typing import Annotated

import typer

from astra.commands.options import Output, RunName, Workspace, connect, examples


def metrics(
    run: RunName,
    name: Annotated[
        list[str] | None,
        typer.Option("--name", metavar="NAME", help="Only metrics of this name; may be repeated."),
    ] = None,
    worker: Annotated[
        list[str] | None,
        typer.Option("--worker", metavar="WORKER", help="Only those of this worker; may be repeated."),
    ] = None,
    from_step: Annotated[
        int | None, typer.Option("--from-step", min=0, metavar="N", help="Only step N and later ones.")
    ] = None,
    points: Annotated[
        int | None,
        typer.Option(
            "--points",
            min=1,
            metavar="N",
            help="With -o, at most N samples of each, the first and the last among them; 1000 otherwise.",
        ),
    ] = None,
    output: Output = None,
    workspace: Workspace = None,
) -> None:
    """Tell a run's metrics: of each name and worker how many, over which steps, first, last, lowest, highest.

    They are those of its newest attempt, written as lines `astraeus-metric loss=6.9 step=50` into a
    worker's log. With -o, every sample.
    """
    from astra.describe import metric_lines
    from astra.output import Format, emit, note, say, word

    # The table shows the first and the last sample.
    asked: dict[str, object] = {"from_step": from_step, "points": points if output else 2}
    filters = {key: str(value) for key, value in asked.items() if value is not None}
    with connect(workspace) as client:
        found = list(client.run_metrics(run, {"name": name or [], "worker": worker or [], **filters}))
    if output is Format.NAME:
        say("\n".join(dict.fromkeys(word(each, "name") for each in found)))
    elif output:
        emit({"items": found}, output)
    elif found:
        say("\n".join(metric_lines(found)))
    else:
        note(f"No metrics of {run} yet. Workers tell them in their logs: astraeus-metric loss=6.9 step=50")


def register(app: typer.Typer) -> None:
    app.command(
        epilog=examples(
            "astra astraeus metrics ddp-resnet50",
            "astra astraeus metrics ddp-resnet50 --name loss --worker ddp-resnet50-0 -o json "
            "| jq '.items[].samples'",
        )
    )(metrics)
