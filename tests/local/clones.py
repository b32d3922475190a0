"""Clones of this repository for tests of `./dev`: the files copied, the installed packages borrowed."""

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from console.local.instance import ROOT

_NOT_COPIED = shutil.ignore_patterns(".*", "node_modules", "__pycache__", "build")
_REQUIREMENTS = {
    "base": ["requirements.txt"],
    "demo": ["requirements.txt", "worker_image/requirements.txt"],
    "develop": ["requirements.txt", "worker_image/requirements.txt", "requirements-dev.txt"],
}


def clone(directory: Path) -> Path:
    """A clone whose .venv counts as up to date: an environment of its own with our installed packages.

    They are linked, not found by a path: workers see their own environment, and no other one that lies below /tmp.
    """
    shutil.copytree(ROOT, directory, ignore=_NOT_COPIED)
    environment = directory / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    packages = next((environment / "lib").glob("python3.*/site-packages"))
    shutil.copytree(
        sysconfig.get_path("purelib"), packages, symlinks=True, copy_function=_link, dirs_exist_ok=True
    )
    torchrun = environment / "bin" / "torchrun"
    # A path with a space can't stand behind `#!`.
    torchrun.write_text(f'#!/bin/sh\nexec "{environment}/bin/python" -m torch.distributed.run "$@"\n')
    torchrun.chmod(0o755)
    for name, files in _REQUIREMENTS.items():
        content = b"".join((directory / file).read_bytes() for file in files)
        (environment / f"requirements-{name}").write_text(hashlib.sha256(content).hexdigest() + "\n")
    return directory


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # on another filesystem
        shutil.copy2(source, target)
