"""The command that installs something here."""

import shutil

_MANAGERS = ("apt-get", "dnf", "zypper")


def install(package: str) -> str:
    for program in _MANAGERS:
        if shutil.which(program):
            return f"{program} install {package}"
    return f"install the package {package}"
