"""Short names of GPU products, as people ask for them: "NVIDIA H100 80GB HBM3" → "H100".

The vendor's library (nvmlDeviceGetName) names products by family, form factor and memory size, in changing
order and spelling. The short name keeps what tells two products apart and drops form factor and memory.
"""

import re
from typing import Final

MAX_NAME: Final = 64

_VENDOR = re.compile(r"^(?:NVIDIA|Tesla|GRID)[ -]+", re.IGNORECASE)
_MIG = re.compile(r"\s+MIG\s+([0-9]+c\.)?([0-9]+g\.[0-9]+gb\S*)$", re.IGNORECASE)
# A slice of a GPU in a virtual machine: the number of GB and the kind of licence stand behind the product.
_VIRTUAL = re.compile(r"^((?:RTX |Quadro )?[A-Z0-9]+-[0-9]{1,3}[ABCQ])$")
# Data centre products: letters of the architecture, digits, sometimes a letter that makes it another product.
_DATA_CENTRE = re.compile(r"^((?:GB|GH|[ABHLMPTVK])[0-9]{1,4}[A-Z]?)(?=$|[ -])", re.IGNORECASE)
_NOISE = re.compile(
    r"\s+(?:Generation|Server Edition|Workstation Edition|Max-Q Workstation Edition|GPU"
    r"|with Max-Q Design|Founders Edition|[0-9]+ ?GB)\b",
    re.IGNORECASE,
)

# There is one generation of these, so its name says nothing; a small or mobile one is another product.
_PRO_BLACKWELL = re.compile(r"^(RTX PRO [0-9]+[A-Z]?) Blackwell( SFF| Laptop)?(?: Edition)?$")


def short_model(product: str) -> str:
    """The name that a request's `models` are compared with; an unknown product keeps a readable one."""
    name = _readable(product)
    mig = _MIG.search(name)
    if mig:
        return f"{short_model(name[: mig.start()])} MIG {(mig[1] or '').lower()}{mig[2].lower()}"
    while vendor := _VENDOR.match(name):
        name = name[vendor.end() :]
    if virtual := _VIRTUAL.match(name):
        return virtual[1]
    if data_centre := _DATA_CENTRE.match(name):
        return data_centre[1].upper()
    return _workstation(name)[:MAX_NAME].rstrip() or "unknown"


def _workstation(name: str) -> str:
    """`RTX 6000 Ada`, `RTX A6000`, `Quadro RTX 6000`, `RTX 4090`: the series stays, editions go."""
    plain = re.sub(r"^GeForce (?=RTX|GTX)", "", name)
    plain = _NOISE.sub("", plain)
    return _PRO_BLACKWELL.sub(r"\1\2", plain)


def _readable(product: str) -> str:
    visible = "".join(character if character.isprintable() else " " for character in product[:256])
    return " ".join(visible.split())


def matches(requested: str, short: str) -> bool:
    """Whether a request's model means the product with this short name: the whole name, in any case.

    "h100" and "NVIDIA H100" mean H100, "A6000" means RTX A6000; none means GH200 or a MIG slice of an H100.
    """
    wanted = _VENDOR.sub("", _readable(requested)).casefold()
    name = short.casefold()
    return wanted == name or (name.startswith("rtx a") and wanted == name.removeprefix("rtx "))
