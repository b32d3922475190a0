"""Signing in, and whose word counts."""

import json
import stat

import pytest

from astra.config import Saved, Target, config_path, read_server, resolve, save
from astra.errors import UsageError
from tests.astra.fake_server import TOKEN


@pytest.fixture
def home(tmp_path):
    """Variables of somebody who has signed in and set nothing."""
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}
    save(Saved("https://a.example.com", "ast_a", "acme/vision"), config_path(environ))
    return environ


def test_what_login_saved(home):
    assert resolve(None, home) == Target("https://a.example.com", "ast_a", "acme/vision")


def test_the_environment_wins_and_the_option_over_it(home):
    environ = home | {"ASTRAEUS_TOKEN": "ast_b", "ASTRAEUS_WORKSPACE": "acme/nlp"}
    assert resolve(None, environ) == Target("https://a.example.com", "ast_b", "acme/nlp")
    assert resolve("other/x", environ).workspace == "other/x"
    assert resolve("x", environ).workspace == "acme/x"


def test_a_saved_token_goes_to_no_other_server(home):
    with pytest.raises(UsageError, match=r"No token for https://b\.example\.com"):
        resolve(None, home | {"ASTRAEUS_SERVER": "https://b.example.com"})


def test_nothing_is_set(tmp_path):
    with pytest.raises(UsageError, match="Not signed in"):
        resolve(None, {"XDG_CONFIG_HOME": str(tmp_path)})


@pytest.mark.parametrize("text", ["{", "[]", '{"server": 1}', '{"token": null}'])
def test_a_damaged_file(home, text):
    config_path(home).write_text(text)
    with pytest.raises(UsageError, match="Run `astra login` again"):
        resolve(None, home)


def test_a_file_that_others_can_read_is_told(home, capsys):
    config_path(home).chmod(0o644)
    resolve(None, home)
    assert "others can read the token" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "server", "workspace"),
    [
        ("https://console.example.com/", "https://console.example.com", ""),
        ("console.example.com", "https://console.example.com", ""),
        ("localhost:8000", "http://localhost:8000", ""),
        ("http://[::1]:8000", "http://[::1]:8000", ""),
        ("https://c.example.com/o/acme/w/vision/jobs/main/x", "https://c.example.com", "acme/vision"),
        ("https://example.com/astraeus/", "https://example.com/astraeus", ""),
        ("https://example.com/api/v1/", "https://example.com", ""),
    ],
)
def test_addresses(text, server, workspace):
    assert read_server(text) == (server, workspace)


@pytest.mark.parametrize(
    "text", ["", "ftp://x", "https://", "https://user:pw@x", "https://x:99999", "https://[::1"]
)
def test_no_addresses(text):
    with pytest.raises(UsageError, match="is not an address"):
        read_server(text)


def test_login(astra, console, monkeypatch, environ):
    for name in ("SERVER", "TOKEN", "WORKSPACE"):
        monkeypatch.delenv(f"ASTRAEUS_{name}")
    result = astra("login", "--server", f"{console.url}/o/acme/w/vision", "--token", "-", input=f"{TOKEN}\n")
    path = config_path(environ)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == f"Signed in to {console.url}, workspace acme/vision. Kept in {path}.\n"
    assert json.loads(path.read_text()) == {"server": console.url, "token": TOKEN, "workspace": "acme/vision"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert list(path.parent.iterdir()) == [path]
    assert astra("astraeus", "runs").exit_code == 0


def test_a_token_that_is_not_accepted_is_not_kept(astra, console, environ):
    result = astra("login", "--server", console.url, "--workspace", "acme/vision", "--token", "wrong")
    assert (result.exit_code, result.stderr) == (4, "Error: This token is not valid.\n")
    assert not config_path(environ).exists()


@pytest.mark.parametrize("token", ["two words", "ünicode", "line\nbreak", " "])
def test_what_is_no_token(astra, console, token):
    result = astra("login", "--server", console.url, "--workspace", "acme/vision", "--token", token)
    assert result.exit_code == 2
    assert console.seen == []


def test_login_without_a_terminal_says_which_option(astra, console, monkeypatch):
    result = astra("login", "--server", console.url, "--workspace", "acme/vision")
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: API token is missing: there is no terminal to ask on. Use --token.\n",
    )
