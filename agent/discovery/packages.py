"""The command that installs something here."""

import shutil

_APT = "apt-get"
_MANAGERS = (_APT, "dnf", "zypper")


def install(package: str, *, apt: str | None = None) -> str:
    """`apt`: what Debian and its kin call it, where that is another name."""
    for program in _MANAGERS:
        if shutil.which(program):
            return f"{program} install {(apt or package) if program == _APT else package}"
    return f"install the package {package}"
