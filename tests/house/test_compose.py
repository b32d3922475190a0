"""compose.yaml, the console's image and its proxy, held against what the console reads, queues and is made of."""

import os
import re
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from console.celery import app

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = ("console", "worker-place", "worker-react", "worker-bulk", "beat", "migrate")
NEVER_SET = {"ASTRAEUS_DEBUG", "ASTRAEUS_DEMO_LOGIN"}
"""Not in production."""
SET_BY_THE_IMAGE = {"ASTRAEUS_STATIC_ROOT", "ASTRAEUS_HASHED_STATIC"}
"""By the image itself, or by its default."""


def settings_read() -> set[str]:
    """Every variable that the console reads."""
    return set(re.findall(r"\benv\.\w+\(\s*\"(\w+)\"", (ROOT / "console" / "settings.py").read_text()))


def test_every_service_of_ours_gets_every_setting_and_no_other() -> None:
    given = [SERVICES[name]["environment"] for name in OURS]
    assert all(each == given[0] for each in given), "one console, whichever process"
    named = {name.removesuffix("_FILE") for name in given[0]}
    assert named == settings_read() - NEVER_SET - SET_BY_THE_IMAGE
    assert (ROOT / "Dockerfile").read_text().count("ASTRAEUS_STATIC_ROOT=/srv/static") == 1


def test_secrets_come_from_files_that_are_declared_and_made() -> None:
    made = set(re.findall(r"^secret (\w+) ", (ROOT / "deploy" / "secrets-make").read_text(), re.MULTILINE))
    assert set(COMPOSE["secrets"]) == made
    for name, service in SERVICES.items():
        wanted = {
            value.removeprefix("/run/secrets/")
            for variable, value in (service.get("environment") or {}).items()
            if variable.endswith("_FILE")
        }
        assert wanted == set(service.get("secrets", [])), name
    secret = {
        "DATABASE_URL",
        "ASTRAEUS_SECRET_KEY",
        "ASTRAEUS_ENCRYPTION_KEY",
        "ASTRAEUS_OLD_ENCRYPTION_KEYS",
    }
    assert not secret & set(SERVICES["console"]["environment"]), "none in a container's environment"


def test_every_queue_has_a_worker_and_beat_is_one() -> None:
    queues = {app.conf.task_default_queue, *(route["queue"] for route in app.conf.task_routes.values())}
    worked = [
        command[command.index("-Q") + 1]
        for name in OURS
        if "-Q" in (command := SERVICES[name].get("command", []))
    ]
    assert sorted(worked) == sorted(queues)
    assert "beat" in SERVICES["beat"]["command"]
    assert all("deploy" not in SERVICES[name] and "scale" not in SERVICES[name] for name in OURS)


def test_nothing_starts_before_what_it_needs() -> None:
    for name in OURS:
        needs = {other: how["condition"] for other, how in SERVICES[name]["depends_on"].items()}
        if name == "migrate":
            assert needs == {"postgres": "service_healthy"}
        else:
            assert needs == {"migrate": "service_completed_successfully", "redis": "service_healthy"}
    healthy = {
        other
        for service in SERVICES.values()
        for other, how in service.get("depends_on", {}).items()
        if how["condition"] == "service_healthy"
    }
    assert all("healthcheck" in SERVICES[name] for name in healthy)
    assert healthy == {"postgres", "redis", "console"}


def test_the_services_are_as_the_settings_page_asks() -> None:
    assert int(SERVICES["postgres"]["image"].rpartition(":")[2].rstrip("}")) >= 15
    redis = SERVICES["redis"]["command"]
    assert redis[redis.index("--maxmemory-policy") + 1] == "noeviction"
    declared = set(COMPOSE["volumes"])
    used = {each.partition(":")[0] for service in SERVICES.values() for each in service.get("volumes", [])}
    assert declared == {each for each in used if not each.startswith(".")}
    assert [name for name, service in SERVICES.items() if service.get("ports")] == ["proxy"]
    assert all(SERVICES[name]["networks"] == ["inside"] for name in SERVICES if name != "proxy")
    pools = int(SERVICES["console"]["environment"]["ASTRAEUS_DATABASE_POOL"].rpartition("-")[2].rstrip("}"))
    most = int(SERVICES["postgres"]["command"][-1].partition("=")[2])
    processes = 7  # console, place, react with two children, bulk, beat, manage.py
    assert pools * processes < most


def test_containers_of_ours_can_do_little() -> None:
    for name in OURS:
        service = SERVICES[name]
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
    assert (ROOT / "Dockerfile").read_text().index("\nUSER astraeus\n")


def test_the_image_holds_all_that_the_console_is_made_of() -> None:
    copied = set(re.findall(r"^COPY (\S+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE))
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    rooms = set(contracts["root_packages"]) - {"agent", "astra"}
    assert rooms | {"templates", "static", "manage.py", "requirements.txt"} == copied
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert let_in == copied, "what is copied must reach the build, and nothing else"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    place = tmp_path / "deploy"
    place.mkdir()
    script = place / "secrets-make"
    script.write_bytes((ROOT / "deploy" / "secrets-make").read_bytes())
    script.chmod(0o755)
    return place


def test_secrets_are_made_once_and_are_good_enough(clone: Path) -> None:
    first = subprocess.run([clone / "secrets-make"], capture_output=True, text=True, check=True)
    secrets = {path.name: path.read_text().strip() for path in (clone / "secrets").iterdir()}
    assert len(first.stdout.splitlines()) == len(secrets) == 5
    assert stat.S_IMODE((clone / "secrets").stat().st_mode) == 0o700
    assert secrets["database_url"] == (
        f"postgres://astraeus:{secrets['database_password']}@postgres:5432/astraeus"
    )
    variables = {
        variable: str(clone / "secrets" / value.removeprefix("/run/secrets/"))
        if variable.endswith("_FILE")
        else value
        for variable, value in SERVICES["console"]["environment"].items()
    }
    told = {name: _default(value) for name, value in variables.items()} | {
        "ASTRAEUS_PUBLIC_URL": "https://console.example.com"
    }
    started = subprocess.run(
        [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], **told},
        capture_output=True,
        text=True,
        check=False,
    )
    assert started.returncode == 0, started.stderr

    again = subprocess.run([clone / "secrets-make"], capture_output=True, text=True, check=True)
    assert again.stdout == ""
    assert {path.name: path.read_text().strip() for path in (clone / "secrets").iterdir()} == secrets


def _default(value: str) -> str:
    """What compose makes of "${NAME:-default}" where NAME isn't set."""
    found = re.fullmatch(r"\$\{\w+:-(.*)\}", value)
    return found[1] if found else value
