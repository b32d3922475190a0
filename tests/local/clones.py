"""Clones of this repository for tests of `./dev`: the files copied, the installed packages borrowed."""

import hashlib
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
    """A clone whose .venv counts as up to date: an environment of its own that finds our installed packages."""
    shutil.copytree(ROOT, directory, ignore=_NOT_COPIED)
    environment = directory / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    packages = next((environment / "lib").glob("python3.*/site-packages"))
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (environment / "bin" / "torchrun").symlink_to(Path(sys.executable).with_name("torchrun"))
    for name, files in _REQUIREMENTS.items():
        content = b"".join((directory / file).read_bytes() for file in files)
        (environment / f"requirements-{name}").write_text(hashlib.sha256(content).hexdigest() + "\n")
    return directory
