"""`./dev` itself, in clones of its own: what it says, what it hands on, what it needs."""

import os
import shutil
import subprocess

import pytest

from tests.local.clones import clone
from tests.local.serving import clean_env

pytestmark = pytest.mark.processes

# What `./dev` needs of the system before it may install anything.
TOOLS = ("bash", "cat", "cut", "dirname", "env", "flock", "id", "mkdir", "readlink", "sha256sum")

CONNECTS = """
import os, psycopg, redis

def test_services():
    assert psycopg.connect(os.environ["DATABASE_URL"]).execute("SELECT 1").fetchone() == (1,)
    assert redis.Redis.from_url(os.environ["REDIS_URL"]).ping()
"""

DEEP_PROFILE = """
from hypothesis import settings

settings.register_profile("deep", max_examples=123)
"""

COUNTS_CASES = """
import pytest
from hypothesis import settings

@pytest.mark.deep
def test_profile():
    assert settings().max_examples == 123

def test_not_for_the_night():
    raise AssertionError("only properties are tried more often")
"""

WAITS_FOR_THE_OTHER = """
import os, pathlib, time

def test_meets_the_other():
    (pathlib.Path("met") / str(os.getpid())).write_text(os.environ["DATABASE_URL"] + os.environ["REDIS_URL"])
    deadline = time.monotonic() + 60
    while len(seen := {file.read_text() for file in pathlib.Path("met").iterdir()}) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
"""


@pytest.fixture(scope="module")
def our_clone(tmp_path_factory):
    found = clone(tmp_path_factory.mktemp("dev") / "a clone's path")
    (found / "pyproject.toml").unlink()  # the tests in it are the ones below, not the project's
    shutil.rmtree(found / "tests")
    (found / "tests").mkdir()
    return found


def dev(directory, *arguments, prefix=(), **options):
    return subprocess.run(
        [*prefix, directory / "dev", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **{"env": clean_env(), "stdin": subprocess.DEVNULL, **options},
    )


def test_without_a_command_it_lists_them(our_clone):
    result = dev(our_clone)
    assert result.returncode == 0
    named = [line.split()[1] for line in result.stdout.splitlines() if line.startswith("./dev ")]
    assert named == ["demo", "up", "test", "lint", "bench", "screenshots", "docs", "help"]


def test_an_unknown_command_is_refused(our_clone):
    result = dev(our_clone, "deom")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "./dev: There is no command 'deom'; ./dev help lists them.\n"


@pytest.mark.parametrize(("assertion", "status"), [("True", 0), ("False", 1)])
def test_the_status_of_dev_test_is_pytests(our_clone, assertion, status):
    (our_clone / "tests" / "test_one.py").write_text(f"def test_one():\n    assert {assertion}\n")
    assert dev(our_clone, "test", "tests/test_one.py").returncode == status


def test_the_deep_tests_are_the_properties_of_placement_tried_more_often(our_clone):
    room = our_clone / "tests" / "placement"
    room.mkdir()
    (room / "pytest.ini").write_text("[pytest]\nmarkers = deep: tried more often\n")
    (room / "conftest.py").write_text(DEEP_PROFILE)
    (room / "test_cases.py").write_text(COUNTS_CASES)
    result = dev(our_clone, "test", "--deep", "-q")
    assert "1 passed, 1 deselected" in result.stdout
    assert result.returncode == 0


def test_dev_test_has_services_and_needs_no_standard_input(our_clone, tmp_path):
    (our_clone / "tests" / "test_services.py").write_text(CONNECTS)
    command = f"'{our_clone}/dev' test tests/test_services.py <&-".replace("clone's", "clone'\\''s")
    result = subprocess.run(
        ["bash", "-c", command],
        cwd=tmp_path,
        env=clean_env(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "1 passed" in result.stdout
    assert (result.returncode, result.stderr) == (0, "")


def test_dev_test_runs_twice_at_the_same_time_in_one_clone(our_clone):
    (our_clone / "tests" / "test_meets.py").write_text(WAITS_FOR_THE_OTHER)
    (our_clone / "met").mkdir()
    both = [
        subprocess.Popen(
            [our_clone / "dev", "test", "tests/test_meets.py"],
            env=clean_env(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        for _ in range(2)
    ]
    assert [process.wait(timeout=120) for process in both] == [0, 0]


def test_a_missing_program_is_named_with_the_command_that_installs_it(our_clone, tmp_path, unprivileged):
    for tool in (*TOOLS, "apt-get"):
        (tmp_path / tool).symlink_to(shutil.which(tool) or "/usr/bin/true")
    for directory in (tmp_path, *list(tmp_path.parents)[:-2]):
        directory.chmod(0o755)
    result = dev(our_clone, "demo", prefix=unprivileged, env={"PATH": str(tmp_path)})
    assert result.returncode == 1
    assert result.stderr == (
        "./dev: The program 'bwrap' is missing. "
        "This installs it: sudo apt-get update && sudo apt-get install -y bubblewrap\n"
    )


def test_a_clone_that_cannot_be_written_is_refused(our_clone, unprivileged):
    if os.geteuid() != 0:
        pytest.skip("needs a clone that belongs to somebody else")
    with (our_clone / "requirements.txt").open("a") as file:
        file.write("# changed\n")
    result = dev(our_clone, "up", prefix=unprivileged)
    assert result.returncode == 1
    assert result.stderr.endswith(f"{our_clone} can't be written. Run ./dev in a clone of your own.\n")


def test_an_installation_that_was_cut_off_is_done_again_from_the_start(tmp_path):
    found = clone(tmp_path / "clone")
    shutil.rmtree(found / ".venv")
    for name in ("requirements.txt", "requirements-dev.txt", "worker_image/requirements.txt"):
        (found / name).write_text("# nothing\n")
    assert "Making .venv" in dev(found, "up").stderr
    assert (found / ".venv" / "requirements-base").exists()
    assert "Making .venv" not in dev(found, "up").stderr
    (found / ".venv" / "installing").touch()  # as a pip that was killed leaves it
    assert "Making .venv" in dev(found, "up").stderr
    assert not (found / ".venv" / "installing").exists()
