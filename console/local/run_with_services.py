"""`./dev test` and `./dev bench`: a program with a PostgreSQL and a Redis of its own."""

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from console.local import interruption
from console.local.errors import LocalError
from console.local.instance import ROOT, first_free
from console.local.keeper import run_kept
from console.local.services import Services, local_services

_BENCH = "import importlib, sys; sys.exit(importlib.import_module(sys.argv[1]).main(sys.argv[2:]))"


_PYTEST = (sys.executable, "-m", "pytest")
_BROWSERS = ("tests/pages",)
_APART = (("tests/e2e", "tests/local", "tests/docker"), _BROWSERS)
"""Tests that run beside the others, each row in a pytest of its own: many wait for processes and browsers."""
_OWN_NETWORK = ("unshare", "--net", "--", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
"""Begins a program with a loopback of its own and nothing else. Whenever the machine's interfaces change, as tests of
Docker engines make them do, Chromium drops all that is on its way (ERR_NETWORK_CHANGED): a page lacks its styles."""


_DEEP = ("tests/placement", "-p", "no:django", "-m", "deep", "--hypothesis-profile=deep", "--timeout=7200")
"""`./dev test --deep`: the properties of placement alone, on many more random clusters."""


def test(arguments: Sequence[str]) -> int:
    """Runs pytest; its exit status is ours. Without arguments: all tests, in lanes at the same time."""
    if "--deep" in arguments:
        others = [argument for argument in arguments if argument != "--deep"]
        return run_kept(lambda: call([*_PYTEST, *_DEEP, *others], os.environ), foreground=True)
    if arguments:
        return run_kept(lambda: _run([*_PYTEST, *arguments], command="test"), foreground=True)
    return run_kept(_run_lanes, foreground=True)


def _run_lanes() -> int:
    """Each lane has services of its own. What those beside the first one say follows its output, whole."""
    apart = [name for names in _APART for name in names]
    print(f"{', '.join(apart)} run beside these tests; what they say follows at the end.", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        lanes = [_beside(names, Path(directory, str(lane))) for lane, names in enumerate(_APART)]
        status = _run([*_PYTEST, *(f"--ignore={name}" for name in apart)], command="test")
        for lane, output in lanes:
            status = lane.wait() or status
            with output.open("rb") as said:
                shutil.copyfileobj(said, sys.stdout.buffer)
            sys.stdout.flush()
    return status


def _beside(names: Sequence[str], output: Path) -> tuple[subprocess.Popen[bytes], Path]:
    """Tests that have been started, and the file that keeps what they say."""
    network = _OWN_NETWORK if names is _BROWSERS and _is_to_be_had(_OWN_NETWORK) else ()
    argv = [*network, sys.executable, "-m", "console.local", "test", *names]
    with output.open("wb") as said:
        return subprocess.Popen(argv, cwd=ROOT, stdout=said, stderr=subprocess.STDOUT), output


def _is_to_be_had(begin: Sequence[str]) -> bool:
    """Whether we may begin programs so: that takes root, as the tests of Docker engines do."""
    with contextlib.suppress(OSError):
        return subprocess.run([*begin, "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0
    return False


def bench(arguments: Sequence[str]) -> int:
    """Runs `main(arguments)` of the module benchmarks/<name>.py; its result is the exit status."""
    if not arguments or arguments[0] not in benchmarks():
        raise LocalError(
            f"Usage: ./dev bench NAME [OPTIONS], where NAME is one of: {', '.join(benchmarks())}."
        )
    name, *options = arguments
    argv = [sys.executable, "-c", _BENCH, f"benchmarks.{name}", *options]
    return run_kept(lambda: _run(argv, command="bench"), foreground=True)


def benchmarks() -> list[str]:
    return sorted(p.stem for p in (ROOT / "benchmarks").glob("*.py") if not p.name.startswith("_"))


def _run(argv: Sequence[str], *, command: str) -> int:
    with (
        first_free(command, command=command) as instance,
        local_services(instance, durable=False) as services,
    ):
        return call(argv, environment(services, instance.directory))


def environment(services: Services, directory: Path) -> dict[str, str]:
    """What the console's settings need, on top of the person's own environment."""
    static = directory / "static"
    static.mkdir(exist_ok=True)  # whitenoise warns of one that is missing
    return {
        **os.environ,
        **services.env,
        "ASTRAEUS_SECRET_KEY": os.environ.get("ASTRAEUS_SECRET_KEY") or secrets.token_urlsafe(48),
        "ASTRAEUS_HASHED_STATIC": "0",
        "ASTRAEUS_STATIC_ROOT": str(static),
        "ASTRAEUS_LOCAL_DIRECTORY": str(directory),
    }


def call(argv: Sequence[str], env: Mapping[str, str]) -> int:
    """Runs a program in the clone with our terminal; Ctrl-C is its business, a SIGTERM to us is passed on."""
    program = subprocess.Popen(argv, cwd=ROOT, env=dict(env))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        status = program.wait()
    except interruption.Interrupted:
        program.terminate()
        try:
            program.wait(timeout=10)
        except subprocess.TimeoutExpired:
            program.kill()
        raise
    return status if status >= 0 else 128 - status
