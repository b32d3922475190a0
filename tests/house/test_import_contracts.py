"""The import contracts of pyproject.toml fail when somebody breaks them: each import here breaks one."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("console", "runs", "machines", "tenancy", "common", "placement", "wire", "agent", "astra")
LINT = "from importlinter.cli import lint_imports_command as run; run(['--no-cache'])"


@pytest.fixture
def sources(tmp_path):
    """Our packages as they are, in a place where they may be spoilt."""
    for name in PACKAGES:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("module", "imported", "contract"),
    [
        ("common/clock.py", "tenancy.models", "console above runs above machines above tenancy above common"),
        ("machines/states.py", "runs.states", "console above runs above machines above tenancy above common"),
        ("placement/flow.py", "django", "placement knows numpy and nothing else"),
        ("placement/flow.py", "wire.names", "placement knows numpy and nothing else"),
        ("wire/names.py", "numpy", "wire knows pydantic and nothing of ours"),
        ("agent/files.py", "console.settings", "agent and astra know wire only"),
        ("astra/states.py", "agent.files", "agent and astra do not know each other"),
        ("machines/states.py", "placement.words", "only runs places"),
    ],
)
def test_an_import_against_the_direction_is_told(sources, module, imported, contract):
    with (sources / module).open("a") as file:
        file.write(f"\nimport {imported}\n")
    lint = subprocess.run(
        [sys.executable, "-c", LINT], cwd=sources, capture_output=True, text=True, check=False
    )

    assert lint.returncode == 1
    assert f"{contract} BROKEN" in lint.stdout
    assert imported.partition(".")[0] in lint.stdout
