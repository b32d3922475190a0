"""Where the server is and who asks.

The environment wins over `~/.config/astra/config.json`, which `astra login` writes.
"""

import json
import os
import re
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

from astra.errors import UsageError

SLUG = r"[a-z0-9](?:[a-z0-9_-]*[a-z0-9])?"
WORKSPACE = re.compile(rf"({SLUG})/({SLUG})")
PAGE_PATH = re.compile(rf"/o/({SLUG})/w/({SLUG})(?:/|$)")
LOOPBACK = {"localhost", "127.0.0.1", "::1"}

NOT_SIGNED_IN = (
    "Not signed in. Run `astra login`, or set ASTRAEUS_SERVER, ASTRAEUS_TOKEN and ASTRAEUS_WORKSPACE."
)


@dataclass(frozen=True, slots=True)
class Saved:
    """The content of config.json."""

    server: str = ""
    token: str = ""
    workspace: str = ""


@dataclass(frozen=True, slots=True)
class Target:
    """Whom a command talks to. `workspace` is `org/workspace`."""

    server: str
    token: str
    workspace: str

    @property
    def organization(self) -> str:
        return self.workspace.partition("/")[0]

    @property
    def workspace_slug(self) -> str:
        return self.workspace.partition("/")[2]


def config_path(environ: Mapping[str, str] = os.environ) -> Path:
    """The XDG rule: a relative XDG_CONFIG_HOME counts as not set."""
    base = Path(environ.get("XDG_CONFIG_HOME", ""))
    if not base.is_absolute():
        base = Path.home() / ".config"
    return base / "astra" / "config.json"


def load(path: Path) -> Saved:
    """What was saved, or nothing. A file that others can read is told, because it holds a token."""
    try:
        text = path.read_text(encoding="utf-8")
        mode = path.stat().st_mode
    except FileNotFoundError:
        return Saved()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} can't be read ({error}). Run `astra login` again.") from error
    if mode & 0o077:
        print(f"Warning: others can read the token in {path}; run `chmod 600 {path}`.", file=sys.stderr)
    return _parse(text, path)


def _parse(text: str, path: Path) -> Saved:
    try:
        data = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{path} is not JSON ({error}). Run `astra login` again.") from error
    fields = ("server", "token", "workspace")
    if not isinstance(data, dict) or not all(isinstance(data.get(name, ""), str) for name in fields):
        raise UsageError(f"{path} is not what `astra login` writes. Run `astra login` again.")
    return Saved(**{name: data.get(name, "") for name in fields})


def save(saved: Saved, path: Path) -> None:
    """Written whole or not at all, never readable by others, not even for a moment."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # mkstemp creates with mode 0600.
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".config-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(asdict(saved), file, indent=2)
                file.write("\n")
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UsageError(f"{path} can't be written: {error}") from error


def read_server(text: str) -> tuple[str, str]:
    """The server's root and, where the address is that of a workspace's page, `org/workspace` (else "")."""
    text = text.strip()
    if "://" not in text:
        host = urlsplit(f"//{text}").hostname or ""
        text = f"{'http' if host in LOOPBACK else 'https'}://{text}"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"“{text}” is not an address: {error}.") from error
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username is not None:
        raise UsageError(f"“{text}” is not an address such as https://console.example.com.")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    root = f"{parts.scheme}://{host}" + (f":{port}" if port else "")
    page = PAGE_PATH.search(parts.path)
    if page:
        return root + parts.path[: page.start()], f"{page[1]}/{page[2]}"
    return root + parts.path.rstrip("/").removesuffix("/api/v1"), ""


def read_workspace(text: str, default_organization: str = "") -> str:
    text = text.strip().strip("/")
    if default_organization and "/" not in text:
        text = f"{default_organization}/{text}"
    if not WORKSPACE.fullmatch(text):
        raise UsageError(f"“{text}” is not a workspace. Write organization/workspace, such as acme/vision.")
    return text


def read_token(text: str) -> str:
    """A token travels in a header: anything that is no printable ASCII is a slip of copying."""
    text = text.strip()
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise UsageError("That is not an API token: it must be one word of ASCII characters.")
    return text


def is_unencrypted(server: str) -> bool:
    parts = urlsplit(server)
    return parts.scheme == "http" and parts.hostname not in LOOPBACK


def resolve(workspace: str | None = None, environ: Mapping[str, str] = os.environ) -> Target:
    """Command line over environment over file.

    A saved token is sent to the server it was saved for and to no other.
    """
    env = {
        name: environ.get(f"ASTRAEUS_{name.upper()}", "").strip() for name in ("server", "token", "workspace")
    }
    complete = all(env.values()) or (env["server"] and env["token"] and workspace and "/" in workspace)
    saved = Saved() if complete else load(config_path(environ))
    server, page_workspace = (
        read_server(env["server"] or saved.server) if env["server"] or saved.server else ("", "")
    )
    if not server:
        raise UsageError(NOT_SIGNED_IN)
    token = env["token"] or (saved.token if server == saved.server else "")
    if not token:
        raise UsageError(
            f"No token for {server}. Run `astra login --server {server}`, or set ASTRAEUS_TOKEN."
        )
    default = env["workspace"] or page_workspace or saved.workspace
    if workspace:
        chosen = read_workspace(workspace, default.partition("/")[0])
    elif default:
        chosen = read_workspace(default)
    else:
        raise UsageError(
            "No workspace chosen. Set ASTRAEUS_WORKSPACE, or use --workspace organization/workspace."
        )
    return Target(server, read_token(token), chosen)
