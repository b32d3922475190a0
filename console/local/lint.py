"""`./dev lint`: every check of the code, each named with its outcome; a failing one hides none."""

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from console.local.instance import ROOT, first_free
from console.local.keeper import run_kept
from console.local.services import local_services


@dataclass(frozen=True)
class Check:
    name: str
    argv: tuple[str, ...]


def lint(_: Sequence[str]) -> int:
    return run_kept(_lint)


def checks() -> list[Check]:
    templates = tuple(str(p.relative_to(ROOT)) for p in ROOT.rglob("templates") if p.is_dir() and _ours(p))
    return [
        Check("ruff format", _module("ruff", "format", "--check", ".")),
        Check("ruff check", _module("ruff", "check", ".")),
        Check("mypy", _module("mypy", ".")),
        Check(
            "import-linter",
            (sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()"),
        ),
        Check("djlint format", _module("djlint", "--check", *templates)),
        Check("djlint lint", _module("djlint", "--lint", "--quiet", *templates)),
        Check(
            "check --deploy", (sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING")
        ),
        Check(
            "makemigrations --check", (sys.executable, "manage.py", "makemigrations", "--check", "--dry-run")
        ),
    ]


def _module(*argv: str) -> tuple[str, ...]:
    # As modules: the programs of .venv/bin name the interpreter by a path, which a moved clone breaks.
    return (sys.executable, "-m", *argv)


def _ours(directory: Path) -> bool:
    return not any(
        part.startswith(".") or part == "node_modules" for part in directory.relative_to(ROOT).parts
    )


def _lint() -> int:
    # The database is for makemigrations, which compares the files with the recorded history.
    with first_free("lint", command="lint") as instance, local_services(instance, durable=False) as services:
        env = production_like(services.env, instance.directory / "static")
        failed = [check.name for check in checks() if not _passes(check, env)]
    print(f"Failed: {', '.join(failed)}." if failed else "All checks passed.", flush=True)
    return 1 if failed else 0


def production_like(services: Mapping[str, str], static: Path) -> dict[str, str]:
    """The environment of a console behind HTTPS: `check --deploy` judges what an operator will run."""
    return {
        **os.environ,
        **services,
        "ASTRAEUS_DEBUG": "0",
        "ASTRAEUS_SECRET_KEY": secrets.token_urlsafe(64),
        "ASTRAEUS_PUBLIC_URL": "https://console.example.org",
        "ASTRAEUS_ALLOWED_HOSTS": "console.example.org",
        "ASTRAEUS_STATIC_ROOT": str(static),
    }


def _passes(check: Check, env: Mapping[str, str]) -> bool:
    started = time.monotonic()
    result = subprocess.run(
        check.argv,
        cwd=ROOT,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    passed = result.returncode == 0
    print(f"{'pass' if passed else 'FAIL'}  {check.name}  {time.monotonic() - started:.1f} s", flush=True)
    if not passed:
        print(result.stdout.rstrip(), flush=True)
    return passed
