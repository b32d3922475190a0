"""What tests with the mark `docker` need of the machine, and why they can't run where it isn't there."""

import os
import shutil
import subprocess

PROGRAMS = (
    "dockerd",
    "docker-registry",
    "iptables",
    "ip",
    "nsenter",
    "prlimit",
    "setpriv",
    "wg",
    "wireguard-go",
    "exportfs",
)
_SECONDS = 20


def why_not() -> str:
    """Empty where they can run."""
    if os.geteuid() != 0:
        return "they start Docker engines and network namespaces, which only root may"
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        return (
            f"these programs are missing: {', '.join(missing)}. ./dev test installs them where there is apt"
        )
    tried = subprocess.run(
        ["unshare", "--net", "true"], capture_output=True, text=True, timeout=_SECONDS, check=False
    )
    return f"this machine makes no network namespace ({tried.stderr.strip()})" if tried.returncode else ""
