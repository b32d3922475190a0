"""`manage.py seed_demo`: a cluster of simulated machines, with runs of every kind, to try the pages on."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from common.errors import DomainError
from console.seeding.scene import Scale, scene_make


class Command(BaseCommand):
    help = "Fills an empty cluster with simulated machines and with runs that wait, run and have ended."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--machines", type=int, default=64, help="of 8 GPUs each (64)")
        parser.add_argument("--waiting", type=int, default=12, help="runs in the queue (12)")
        parser.add_argument("--finished", type=int, default=200, help="runs that have ended (200)")
        parser.add_argument("--cluster", default="main", help="its slug; made where it is missing (main)")
        parser.add_argument("--seed", type=int, default=1, help="another number gives another cluster (1)")

    def handle(
        self, *, machines: int, waiting: int, finished: int, cluster: str, seed: int, **_: Any
    ) -> None:
        if min(machines, waiting, finished) < 0 or machines == 0:
            raise CommandError("--machines takes a number from 1 on, --waiting and --finished one from 0 on.")
        try:
            scene_make(cluster, Scale(machines, waiting, finished), seed, self._say)
        except DomainError as error:
            raise CommandError(error.message) from error
        self.stdout.write(self.style.SUCCESS("Done. Sign in as demo; ./dev up makes a link for it."))

    def _say(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()
