"""`./dev screenshots`: every page as a picture, light and dark, wide and narrow, on a seeded cluster of its own."""

import argparse
import contextlib
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psycopg
from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

from console.local.client import Access
from console.local.instance import ROOT, exclusive
from console.local.keeper import run_kept
from console.local.report import Report
from console.local.services import local_services
from console.local.stack import Stack

W, M = "/o/acme/w/vision", "/o/acme/clusters/main/machines"
THEMES = ("light", "dark")
WIDTHS = {"wide": (1280, 800), "phone": (390, 844)}
TALLEST = 2400
PICTURES = ROOT / "docs" / "pictures"
SCREEN: ViewportSize = {"width": 1280, "height": 760}
README: dict[str, Literal["light", "dark"]] = {"map": "light", "explanation-fit": "light", "runs": "dark"}
"""Pages whose pictures stand in README.md, and in which theme."""
RUNS = """
SELECT DISTINCT ON (state, wait_kind) state || CASE wait_kind WHEN '' THEN '' ELSE '-' || wait_kind END, name
FROM runs_run WHERE workspace_id = (SELECT id FROM tenancy_workspace WHERE slug = 'vision') AND parent_id IS NULL
ORDER BY state, wait_kind, id
"""
BROKEN = """
SELECT m.name FROM machines_machine m JOIN machines_gpu g ON g.machine_id = m.id
WHERE g.health = 'faulty' AND m.unreachable_at IS NULL ORDER BY m.name LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class Options:
    readme: bool
    only: str


def screenshots(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="./dev screenshots", description="Every page as a picture.")
    parser.add_argument("--readme", action="store_true", help="write the README's pictures anew, too")
    parser.add_argument("--only", default="", help="pages whose name has this in it")
    parsed = parser.parse_args(arguments)
    return run_kept(lambda: _screenshots(Options(parsed.readme, parsed.only)))


def _screenshots(options: Options) -> int:
    report = Report()
    with contextlib.ExitStack() as stack:
        instance = stack.enter_context(exclusive("screenshots"))
        instance.remove_data()
        with report.step("PostgreSQL and Redis answer"):
            services = stack.enter_context(local_services(instance, durable=False))
        console = Stack(instance, services)
        stack.callback(console.stop)
        with report.step("The console answers"):
            console.start()
            console.wait_ready()
        with report.step("A cluster is seeded"):
            access = Access.make(console, machines=0)
            console.manage("seed_demo")
        pages = [
            each for each in _pages(console.env["DATABASE_URL"]) if options.readme or options.only in each[0]
        ]
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        stack.callback(browser.close)
        folder = instance.directory / "pictures"
        for theme in THEMES:
            with report.step(f"{len(pages)} pages are drawn, {theme}"):
                _draw(browser, access, pages, theme, folder)
        if options.readme:
            _keep(browser, access, pages)
        report.fact("pictures", str(folder))
    return 0


def _pages(database: str) -> Iterator[tuple[str, str]]:
    """Name and address."""
    with contextlib.closing(psycopg.connect(database)) as connection:
        runs: dict[str, Any] = dict(connection.execute(RUNS).fetchall())
        broken = connection.execute(BROKEN).fetchone()
    yield from (("runs", f"{W}/jobs"), ("queue", f"{W}/jobs/queue"), ("runs-none", f"{W}/jobs?text=nothing"))
    yield "new-run", f"{W}/jobs/new"
    for kind, name in runs.items():
        yield f"run-{kind.lower()}", f"{W}/jobs/main/{name}"
    for kind in ("Pending-fit", "Pending-never", "Pending-order"):
        if kind in runs:
            yield f"explanation-{kind[8:]}", f"{W}/jobs/main/{runs[kind]}/explanation"
    for state in ("Running", "Failed"):
        yield f"worker-{state.lower()}", f"{W}/workers/{runs[state]}-0"
    yield from (("machines", M), ("map", f"{M}/map"), ("add-machine", f"{M}/add"))
    if broken:
        yield from (("machine", f"{M}/{broken[0]}"), ("machine-label", f"{M}/{broken[0]}?edit=rack"))
    yield from ((each, f"/o/acme/clusters/main/{each}") for each in ("fabrics", "pools", "mesh", "drives"))
    yield "settings", f"{W}/settings"
    yield from (("styleguide", "/styleguide"), ("not-found", "/nothing/here"))


def _draw(
    browser: Browser, access: Access, pages: Sequence[tuple[str, str]], theme: str, folder: Path
) -> None:
    for width, (wide, high) in WIDTHS.items():
        context = browser.new_context(
            base_url=access.url,
            viewport={"width": wide, "height": high},
            color_scheme="dark" if theme == "dark" else "light",
        )
        page = context.new_page()
        page.goto(access.login_url)
        for name, address in pages:
            _picture(page, address, folder / f"{name}-{width}-{theme}.png", whole=width == "wide")
        context.close()


def _picture(page: Page, address: str, file: Path, *, whole: bool) -> None:
    """The first screen, or the whole page as far as one looks at it."""
    page.goto(address)
    file.parent.mkdir(exist_ok=True)
    first = page.viewport_size
    if whole and first:
        height = page.evaluate(f"Math.min(document.documentElement.scrollHeight, {TALLEST})")
        page.set_viewport_size({"width": first["width"], "height": max(height, first["height"])})
    page.screenshot(path=file)
    if first:
        page.set_viewport_size(first)


def _keep(browser: Browser, access: Access, pages: Sequence[tuple[str, str]]) -> None:
    """The first screen of each: they are part of the repository, so they are few and small."""
    PICTURES.mkdir(exist_ok=True)
    addresses = dict(pages)
    for name, theme in README.items():
        context = browser.new_context(base_url=access.url, viewport=SCREEN, color_scheme=theme)
        page = context.new_page()
        page.goto(access.login_url)
        _picture(page, addresses[name], PICTURES / f"{name}.png", whole=False)
        context.close()
