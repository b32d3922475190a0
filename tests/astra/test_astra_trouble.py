"""Refusals, wrong words and broken connections; help, which needs no server at all."""

import subprocess
import sys
from typing import Any

import pytest

from tests.astra.fake_server import ROOT


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (401, 4, "The token is not accepted. Run `astra login`, or check ASTRAEUS_TOKEN."),
        (403, 4, "Your role does not allow this."),
        (404, 3, "There is nothing of that name that you may see."),
    ],
)
def test_refusals(astra, console, status, code, message):
    console.answers = [(status, b"<html>", {"content-type": "text/html"})]
    result = astra("astraeus", "show", "ddp")
    assert (result.exit_code, result.stdout, result.stderr) == (code, "", f"Error: {message}\n")


def test_a_wrong_token(astra, console, monkeypatch):
    monkeypatch.setenv("ASTRAEUS_TOKEN", "wrong")
    result = astra("astraeus", "runs")
    assert (result.exit_code, result.stderr) == (4, "Error: This token is not valid.\n")


def test_a_server_that_is_not_there(astra, console, monkeypatch):
    monkeypatch.setenv("ASTRAEUS_SERVER", "http://127.0.0.1:1")
    result = astra("astraeus", "runs")
    assert (result.exit_code, result.stdout) == (5, "")
    assert result.stderr.startswith("Error: http://127.0.0.1:1 can't be reached: ")


def test_something_that_is_no_console(astra, console):
    console.answers = [(200, b"<html>hello", {"content-type": "text/html"})]
    result = astra("astraeus", "runs")
    assert (result.exit_code, result.stderr) == (
        1,
        f"Error: {console.url} does not answer as an Astraeus console does. Is the address right?\n",
    )


@pytest.mark.parametrize("name", ["", ".", "..", "a\nb", "x" * 300])
def test_names_that_are_none(astra, console, name):
    assert astra("astraeus", "show", name).exit_code == 2
    assert console.seen == []


def test_a_slash_in_a_name_stays_in_the_name(astra, console):
    assert astra("astraeus", "show", "../../w/other/runs/x").exit_code == 3
    assert console.seen[0].path == "/api/v1/o/acme/w/vision/runs/..%2F..%2Fw%2Fother%2Fruns%2Fx"


def test_usage_errors(astra):
    assert astra("astraeus", "run", "--name", "a").exit_code == 2
    assert astra("astraeus", "nosuch").exit_code == 2
    assert astra("astraeus", "runs", "--watch", "-o", "json").exit_code == 2


def test_a_table_whose_reader_goes_away(command, console, environ):
    for number in range(3000):
        console.add_run(f"run-{number}")
    console.page_size = 5000
    pipe = f"set -o pipefail; {' '.join(command)} astraeus runs | head -n 1; echo $?"
    done = subprocess.run(
        ["bash", "-c", pipe], cwd=ROOT, capture_output=True, text=True, check=False, timeout=30
    )
    assert done.stdout.splitlines() == [
        "NAME                          CLUSTER       STATE       REASON",
        "141",
    ]
    assert done.stderr == ""


def test_every_command_s_help_has_an_example(astra):
    from typer.main import get_command

    from astra.app import app

    root: Any = get_command(app)
    leaves = [["login"], *(["astraeus", name] for name in root.commands["astraeus"].commands)]
    assert len(leaves) >= 18
    for words in leaves:
        result = astra(*words, "--help")
        assert result.exit_code == 0
        assert f"\n    $ astra {' '.join(words)}" in result.stdout or "$ jq" in result.stdout


def test_help_loads_nothing_heavy():
    probe = (
        "import sys; sys.argv = ['astra', '--help']\n"
        "from astra.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'rich', 'httpx', 'pydantic', 'yaml', 'django', 'asyncio'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout.splitlines()[-1] == "[]"
