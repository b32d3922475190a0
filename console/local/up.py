"""`./dev up`: the console alone, for development, with the data of earlier times."""

import argparse
import contextlib
from collections.abc import Sequence

from console.local.client import Access
from console.local.demo import PORT
from console.local.instance import exclusive
from console.local.interruption import Interrupted
from console.local.keeper import run_kept
from console.local.report import Report
from console.local.services import local_services
from console.local.stack import Stack


def up(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="./dev up", description="The console alone, for development.")
    parser.add_argument("--reload", action="store_true", help="restart the server when its code changes")
    options = parser.parse_args(arguments)
    return run_kept(lambda: _up(reload=options.reload))


def _up(*, reload: bool) -> int:
    report = Report()
    with contextlib.ExitStack() as stack:
        instance = stack.enter_context(exclusive("up"))
        with report.step("PostgreSQL and Redis answer"):
            services = stack.enter_context(local_services(instance, durable=True))
        with report.step("The console answers, Celery's workers take tasks"):
            console = stack.enter_context(
                Stack(instance, services, port=PORT, reload=reload, env={"ASTRAEUS_DEBUG": "1"})
            )
        instance.note(command="up", state="running", url=console.base_url)
        access = Access.make(console, machines=0)
        report.heading("Console")
        access.tell(report)
        report.fact("logs", str(instance.logs))
        report.heading("Ctrl-C ends it; the data stay in .astraeus/up for the next time.")
        with contextlib.suppress(Interrupted):
            console.watch()
    return 0
