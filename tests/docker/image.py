"""A small image made of this machine's own files, as no registry can be reached: Python, a shell, the usual tools.

It is kept below .astraeus/ and made anew for another Python, and when this module changes.
"""

import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
IMAGE = "astraeus-test:1"
_TOOLS = (
    *(
        "bash",
        "sh",
        "cat",
        "cut",
        "date",
        "dd",
        "df",
        "echo",
        "env",
        "false",
        "grep",
        "head",
        "hostname",
        "id",
    ),
    *("ip", "ls", "mkdir", "rm", "seq", "sleep", "sort", "stat", "tail", "test", "touch", "tr", "true", "wc"),
)
_LIBRARIES = (
    "libstdc++.so.6",
    "libgcc_s.so.1",
    "librt.so.1",
    "libdl.so.2",
    "libpthread.so.0",
    "libutil.so.1",
)
"""What PyTorch is linked with, beyond what Python and the tools are."""
_LEFT_OUT = {"test", "tests", "idlelib", "site-packages", "dist-packages", "ensurepip", "tkinter", "lib2to3"}
_SUFFIXES = {".py", ".so"}
_FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/bash\ntrainer:x:1500:1500::/tmp:/bin/bash\n",
    "etc/group": "root:x:0:\ntrainer:x:1500:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}


def image_archive() -> Path:
    """The tar for `docker import`; its directory is shared by all test runs of this clone."""
    python = Path(os.path.realpath(sys.executable))
    key = hashlib.sha256(f"{python} {python.stat().st_mtime_ns}".encode() + Path(__file__).read_bytes())
    path = ROOT / ".astraeus" / "test-image" / f"{key.hexdigest()[:16]}.tar"
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}")
        _write(temporary, dict(sorted(_contents())))
        temporary.rename(path)
    return path


def _write(path: Path, files: dict[str, Path]) -> None:
    with tarfile.open(path, "w", dereference=True) as archive:
        for name, mode in (("tmp", 0o1777), ("root", 0o755), ("etc", 0o755), ("proc", 0o755), ("dev", 0o755)):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            archive.addfile(entry)
        for name, text in _FILES.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(text), 0o644
            archive.addfile(entry, io.BytesIO(text.encode()))
        for target, source in files.items():
            archive.add(source, target, recursive=False)


def _contents() -> Iterator[tuple[str, Path]]:
    python = Path(os.path.realpath(sys.executable))
    programs = [Path(found) for found in map(shutil.which, _TOOLS) if found]
    extensions = [file for file in (_stdlib() / "lib-dynload").glob("*.so") if "tkinter" not in file.name]
    for program in programs:
        yield f"usr/bin/{program.name}", program
    yield "bin/sh", Path(os.path.realpath("/bin/sh"))
    yield "bin/bash", Path(os.path.realpath("/bin/bash"))
    yield "usr/local/bin/python3", python
    for library in _libraries([python, *programs, *extensions]):
        yield str(library).lstrip("/"), library
    below = f"usr/local/lib/{_stdlib().name}"
    for file in _stdlib().rglob("*"):
        inner = file.relative_to(_stdlib())
        if file.is_file() and file.suffix in _SUFFIXES and not _LEFT_OUT & set(inner.parts):
            yield f"{below}/{inner}", file


def _stdlib() -> Path:
    return Path(sysconfig.get_path("stdlib"))


def _libraries(files: list[Path]) -> set[Path]:
    """Everything that the dynamic linker would load for them, with itself."""
    said = subprocess.run(
        ["ldd", *map(str, files)], capture_output=True, text=True, timeout=60, check=False
    ).stdout
    found = {Path(path) for path in re.findall(r"(?:=> |^\s+)(/\S+) \(0x", said, re.MULTILINE)}
    cache = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, timeout=60, check=True)
    for name in _LIBRARIES:
        place = re.search(rf"^\s+{re.escape(name)} \(.*x86-64.*\) => (\S+)$", cache.stdout, re.MULTILINE)
        found |= {Path(place[1])} if place else set()
    return found
