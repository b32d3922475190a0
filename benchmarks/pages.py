"""`./dev bench pages`: how long the server takes for each page, on a full cluster.

The time is that of the request inside this process, from the address to the last byte of the answer: Django with all
its middleware, its queries and templates; no socket, no browser. Each page is asked once before it is measured, as it
is on a console that has been up for a minute. The cluster is `manage.py seed_demo`'s. An explanation is shared for some
seconds by all who ask for it: `anew` is what the first of them waits for.
"""

import argparse
import gzip
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import django

from benchmarks._common import percentile
from console.local.stack import temporary_database

if TYPE_CHECKING:
    from django.test import Client

PAGE_MS, EXPLANATION_MS = 100, 150
"""p95 to reach."""
W = "/o/acme/w/vision"
M = "/o/acme/clusters/main/machines"


@dataclass(frozen=True, slots=True)
class Asked:
    name: str
    address: str
    limit_ms: int = PAGE_MS
    fragment: bool = False
    """As htmx asks: the live part alone."""
    anew: bool = False
    """Every time worked out, not shared."""


@dataclass(frozen=True, slots=True)
class Figures:
    page: str
    p50_ms: float
    p95_ms: float
    cpu_ms: float
    """Median of what this process computes of it; the rest is the database's, or others' on a busy machine."""
    limit_ms: int
    queries: int
    kilobytes: float
    compressed_kilobytes: float

    @property
    def reached(self) -> bool:
        return self.p95_ms <= self.limit_ms


def main(argv: Sequence[str]) -> int:
    """1 when a page takes longer than it may."""
    parser = argparse.ArgumentParser(prog="./dev bench pages", description="The server's time for each page.")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--machines", type=int, default=10_000, help="of the seeded cluster (10,000)")
    parser.add_argument("--waiting", type=int, default=1_000, help="runs in its queue (1,000)")
    parser.add_argument("--finished", type=int, default=100_000, help="runs that have ended (100,000)")
    parser.add_argument("--times", type=int, default=20, help="how often each page is asked (20)")
    parser.add_argument("--only", default="", help="pages whose name has this in it")
    options = parser.parse_args(argv)
    with temporary_database(os.environ["DATABASE_URL"]) as database:
        os.environ |= {"DATABASE_URL": database, "ASTRAEUS_ALLOWED_HOSTS": "testserver"}
        os.environ["DJANGO_SETTINGS_MODULE"] = "console.settings"
        django.setup()
        _load()
        _seed(options)
        figures = [_measure(each, options.times) for each in _pages() if options.only in each.name]
    _tell(figures, as_json=options.json)
    return 0 if all(each.reached for each in figures) else 1


def _load() -> None:
    """As the server does when it starts."""
    from console.loading import load

    load()


def _seed(options: argparse.Namespace) -> None:
    from django.core.management import call_command

    begun = perf_counter()
    call_command("migrate", verbosity=0)
    scale = {name: getattr(options, name) for name in ("machines", "waiting", "finished")}
    call_command("seed_demo", stdout=sys.stderr, **scale)
    print(f"Seeded in {perf_counter() - begun:.0f} s.", file=sys.stderr)


def _pages() -> Iterator[Asked]:
    yield Asked("runs", f"{W}/jobs")
    yield Asked("runs, page 2", f"{W}/jobs?before={_middle_run()}")
    yield Asked("runs, filtered", f"{W}/jobs?state=Failed&owner=mira&label=project%3Dspeech-2")
    yield Asked("runs, text", f"{W}/jobs?text=llm-9999")
    yield Asked("runs, nothing matches", f"{W}/jobs?text=no-such-run")
    yield Asked("queue", f"{W}/jobs/queue")
    yield Asked("queue, page 5", f"{W}/jobs/queue?page=5")
    yield Asked("runs, live", f"{W}/jobs?shown={','.join(map(str, _newest_runs()))}&newest=0", fragment=True)
    yield Asked("new run", f"{W}/jobs/new")
    yield from _run_pages()
    yield Asked("settings", f"{W}/settings")
    yield from _machine_pages()


def _middle_run() -> int:
    from runs.models import Run

    return Run.objects.order_by("id")[Run.objects.count() // 2].id


def _newest_runs() -> list[int]:
    from runs.models import Run

    return list(Run.objects.filter(workspace__slug="vision").values_list("id", flat=True)[:50])


def _run_pages() -> Iterator[Asked]:
    from runs.models import Run
    from runs.states import RunState, WaitKind

    runs = Run.objects.filter(workspace__slug="vision")
    waiting = Run.objects.waiting().select_related("workspace").order_by("-priority", "id")
    for state in (RunState.STARTING, RunState.RUNNING, RunState.FAILED):
        run = runs.filter(state=state).earliest("id")
        yield Asked(f"run, {state}", f"{W}/jobs/main/{run.name}")
        yield Asked(f"worker, {state}", f"{W}/workers/{run.name}-0")
    for kind in WaitKind:
        for run in waiting.filter(wait_kind=kind)[:1]:
            address = f"/o/acme/w/{run.workspace.slug}/jobs/main/{run.name}"
            yield Asked(f"run, waits: {kind}", address, EXPLANATION_MS)
            yield Asked(f"explanation: {kind}", f"{address}/explanation", EXPLANATION_MS)
            yield Asked(f"explanation: {kind}, anew", f"{address}/explanation", EXPLANATION_MS, anew=True)


def _machine_pages() -> Iterator[Asked]:
    from machines.models import Machine

    machines = Machine.objects.filter(cluster__slug="main")
    yield Asked("machines", M)
    yield Asked("machines, filtered", f"{M}?state=cordoned")
    yield Asked("machines, live", M, fragment=True)
    yield Asked("map", f"{M}/map")
    yield Asked("machine", f"{M}/{machines.filter(gpus__health='faulty').first()}")
    yield Asked("machine, label", f"{M}/{machines.first()}?edit=rack")
    yield Asked("machine, drain", f"{M}/{machines.first()}/drain")
    yield Asked("add a machine", f"{M}/add")
    for name in ("pools", "mesh", "drives"):
        yield Asked(name, f"/o/acme/clusters/main/{name}")
    pool = machines.values_list("pool__slug", flat=True).first()
    yield Asked("pools, one", f"/o/acme/clusters/main/pools/{pool}")


def _measure(asked: Asked, times: int) -> Figures:
    from runs.explaining.recent import Recent

    unshared = patch.object(Recent, "get", lambda _, __, make: make())
    with unshared if asked.anew else nullcontext():
        return _figures(asked, times)


def _figures(asked: Asked, times: int) -> Figures:
    client, headers = _signed_in(), {"HX-Request": "true"} if asked.fragment else {}
    _ask(client, asked, headers)
    took, computed, answers = zip(*(_ask(client, asked, headers) for _ in range(times)), strict=True)
    content = answers[-1].content
    return Figures(
        page=asked.name,
        p50_ms=round(percentile(took, 0.5), 1),
        p95_ms=round(percentile(took, 0.95), 1),
        cpu_ms=round(percentile(computed, 0.5), 1),
        limit_ms=asked.limit_ms,
        queries=_queries(client, asked, headers),
        kilobytes=round(len(content) / 1000, 1),
        compressed_kilobytes=round(len(gzip.compress(content)) / 1000, 1),
    )


def _signed_in() -> "Client":
    from django.test import Client

    from tenancy.models import User

    client = Client()
    client.force_login(
        User.objects.get(username="demo"), backend="allauth.account.auth_backends.AuthenticationBackend"
    )
    return client


def _ask(client: "Client", asked: Asked, headers: dict[str, str]) -> tuple[float, float, Any]:
    """Milliseconds of wall clock and of this process, and the answer."""
    begun, computing = perf_counter(), process_time()
    answer = client.get(asked.address, headers=headers)
    took, computed = (perf_counter() - begun) * 1000, (process_time() - computing) * 1000
    assert answer.status_code == 200, f"{asked.address} answered {answer.status_code}"
    return took, computed, answer


def _queries(client: "Client", asked: Asked, headers: dict[str, str]) -> int:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    with CaptureQueriesContext(connection) as captured:
        _ask(client, asked, headers)
    return len(captured)


def _tell(figures: Sequence[Figures], *, as_json: bool) -> None:
    if as_json:
        missed = [each.page for each in figures if not each.reached]
        print(json.dumps({"pages": [asdict(each) for each in figures], "missed": missed}, indent=2))
        return
    print(
        f"{'page':<28}{'p50 ms':>9}{'p95 ms':>9}{'cpu ms':>9}{'at most':>9}{'queries':>9}{'kB':>9}{'gzip kB':>9}"
    )
    for each in figures:
        mark = "" if each.reached else "  missed"
        print(
            f"{each.page:<28}{each.p50_ms:>9}{each.p95_ms:>9}{each.cpu_ms:>9}{each.limit_ms:>9}{each.queries:>9}"
            f"{each.kilobytes:>9}{each.compressed_kilobytes:>9}{mark}"
        )
