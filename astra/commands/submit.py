"""`run` and `submit`: a document, from flags or from a file, becomes a run."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from astra.commands.options import Workspace, connect, examples

if TYPE_CHECKING:
    from astra.client import Client

Wait = Annotated[
    bool, typer.Option("--wait", help="Wait for the end; exit 0 when the run Succeeded, 1 otherwise.")
]
Follow = Annotated[
    bool, typer.Option("--follow", "-f", help="Print all workers' logs until the end; exits as --wait.")
]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Say where it would be placed, or why not; start nothing."),
]


def run(
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="The run's name: a-z, 0-9 and -.")],
    image: Annotated[
        str, typer.Option("--image", metavar="IMAGE", help="The container image of the workers.")
    ],
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- COMMAND", help="What every worker runs; after `--`."),
    ] = None,
    gpus: Annotated[
        int | None, typer.Option("--gpus", min=0, metavar="N", help="GPUs of the whole run.")
    ] = None,
    machines: Annotated[
        int | None,
        typer.Option(
            "--machines", min=1, metavar="N", help="On exactly so many machines, started as a gang."
        ),
    ] = None,
    cpus: Annotated[
        float | None,
        typer.Option("--cpus", metavar="N", help="Cores per GPU; per worker in a run without GPUs."),
    ] = None,
    mem: Annotated[
        str | None, typer.Option("--mem", metavar="SIZE", help="Memory per GPU or per worker: 100G, 512M.")
    ] = None,
    time: Annotated[
        str | None, typer.Option("--time", metavar="DURATION", help="Stopped after so long: 1h, 1h30m, 2d.")
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", "-e", metavar="K=V", help="A variable; `K` alone takes its value here."),
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option("--label", metavar="K=V", help="A label of the run.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", metavar="CLUSTER", help="Instead of the workspace's default.")
    ] = None,
    wait: Wait = False,
    follow: Follow = False,
    dry_run: DryRun = False,
    workspace: Workspace = None,
) -> None:
    """Start a run that flags can describe; `submit` takes the rest.

    With GPUs, --cpus and --mem are per GPU. Several machines start together or not at all. Keep a
    command's variables in single quotes: they are the worker's, not your shell's.
    """
    from astra import documents

    flags = documents.RunFlags(
        name=name, image=image, command=tuple(command or ()), gpus=gpus, machines=machines,
        cpus=cpus, mem=mem, time=time, env=tuple(env or ()), labels=tuple(label or ()), cluster=cluster,
    )  # fmt: skip
    document = documents.check(documents.build(flags))
    _send(document, workspace, wait=wait, follow=follow, dry_run=dry_run)


def submit(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The run document, JSON; `-` reads stdin.")],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Change a field: spec.task_template.env.STEPS=10."),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option(
            "--config", metavar="LOCAL:/PATH", help="Give every worker this text file at that path."
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Instead of the document's name.")
    ] = None,
    wait: Wait = False,
    follow: Follow = False,
    dry_run: DryRun = False,
    workspace: Workspace = None,
) -> None:
    """Start the run that a document describes.

    A value after --set is JSON where it is JSON, else text; values of env and labels are always text.
    """
    from astra import documents

    document = documents.load(file, documents.Changes(tuple(set_ or ()), tuple(config or ()), name))
    _send(document, workspace, wait=wait, follow=follow, dry_run=dry_run)


def _send(
    document: dict[str, Any], workspace: str | None, *, wait: bool, follow: bool, dry_run: bool
) -> None:
    from astra.output import run_row, say, word

    with connect(workspace) as client:
        if dry_run:
            _tell_dry_run(client.run_create(document, dry_run=True))
            return
        made = client.run_create(document)
        name, cluster, _, _ = run_row(made)
        say(f"{name} submitted to {cluster}: {word(made, 'status', 'url')}")
        if wait or follow:
            _see_through(client, made, name, follow=follow)


def _tell_dry_run(answer: Any) -> None:
    """The placement's sentence or the explanation, whichever the server gives."""
    from astra.explanation import explanation_lines, sentence
    from astra.output import Format, emit, get, say

    placement, explanation = get(answer, "placement"), get(answer, "explanation")
    if sentence(placement):
        say(f"Would start now: {sentence(placement)}")
    elif explanation:
        say("\n".join(explanation_lines(explanation)))
    else:
        emit(answer, Format.JSON)


def _see_through(client: "Client", run: Any, name: str, *, follow: bool) -> None:
    """Stays until the run has ended and takes its outcome over."""
    import sys

    from astra.commands.logs import write_merged
    from astra.output import note
    from astra.waiting import wait_until_ended

    sys.stdout.flush()
    try:
        if follow:
            write_merged(client, run)
        ended = wait_until_ended(client, name, lambda now: None if follow else note(_progress(now)))
    except KeyboardInterrupt:
        note(f"\n{name} goes on. Stop it with: astra astraeus stop {name}")
        raise
    note(_progress(ended))
    if ended["status"]["state"] != "Succeeded":
        raise typer.Exit(1)


def _progress(run: Any) -> str:
    from astra.output import run_row

    name, _, state, reason = run_row(run)
    if reason.startswith(state):  # "Failed: ddp-0 on gpu-01: code 3"
        return f"{name} {reason}"
    return f"{name} {state}: {reason}" if reason else f"{name} {state}"


def register(app: typer.Typer) -> None:
    app.command(
        # The worker's own options begin after the first word of its command, with or without `--`.
        context_settings={"allow_interspersed_args": False},
        epilog=examples(
            "astra astraeus run --name ddp --image registry.example.com/ml/ddp:1 --gpus 16 --machines 2 \\",
            "    --cpus 12 --mem 100G --time 1h -e NCCL_DEBUG=INFO \\",
            "    -- bash -c 'exec torchrun --nnodes=$WORLD_SIZE --node-rank=$RANK ... train.py'",
        ).replace("  $     ", "        "),
    )(run)
    app.command(
        epilog=examples(
            "astra astraeus submit run.json --follow",
            "astra astraeus submit run.json --config train_ddp.py:/app/train_ddp.py --set spec.priority=10",
            "jq '.spec.max_restarts = 5' run.json | astra astraeus submit - --name ddp-2",
        )
    )(submit)
