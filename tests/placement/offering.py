"""What would start a run, as the drawn tests ask for it and read it."""

from typing import Any

from placement import Request, words_whatif
from placement.holdings import Hold, Holding
from placement.whatif import Code, Named, WhatIf, WhatIfs, what_ifs
from tests.placement.asking import GIB, refused_on, snapshot_of

GUIDE = """
    gpu-01  H100 ....|....  ib:ib-a  rack=r1
    gpu-02  H100 ....|####  ib:ib-a  rack=r1  cpu=80 mem=1648
    gpu-03  H100 ....|.?..  ib:ib-a  rack=r2
    gpu-04  H100 ....|....  ib:ib-a  rack=r2  state=ready,cordoned
    gpu-09  H100 ####|####  ib:ib-b  cpu=32 mem=1248
    gpu-10  H100 ####|####  ib:ib-b  cpu=32 mem=1248
    gpu-21  A100 ....|....  ib:ib-a
"""

SLOW = """
    gpu-01  H100 ....|....  ib:ib-a  rack=r1
    gpu-02  H100 ....|....  ib:ib-a@200  rack=r1
    gpu-03  H100 ....|....  ib:ib-a@100  rack=r1
    gpu-04  H100 ....|....  ib:ib-a-down  rack=r1
"""


def run(key: int, name: str, preemptible: bool = False, ends_at: float | None = None, **gpus: str) -> Named:
    """A run and the GPUs that it holds: gpu_02="4567"; 12 cores and 100 GiB with each."""
    holds = tuple(
        Hold(machine.replace("_", "-"), tuple(map(int, held)), 12_000 * len(held), 100 * GIB * len(held))
        for machine, held in gpus.items()
    )
    return Named(Holding(key, holds, ends_at), name, preemptible)


def asked(drawing: str, request: Request, *holdings: Named, limit: int = 400) -> WhatIfs:
    snapshot = snapshot_of(drawing)
    return what_ifs(snapshot, request, refused_on(snapshot, request), holdings=holdings, limit=limit)


def told(drawing: str, request: Request, *holdings: Named) -> list[str]:
    """The sentences."""
    return [words_whatif.what_if_sentence(offer.as_data()) for offer in asked(drawing, request, *holdings)]


def offered(drawing: str, request: Request, code: Code, *holdings: Named) -> WhatIf:
    """The one single change of this kind."""
    every = asked(drawing, request, *holdings)
    [offer] = [one for one in every if [change.code for change in one.changes] == [code]]
    return offer


def sentence(drawing: str, request: Request, code: Code, *holdings: Named) -> str:
    return words_whatif.what_if_sentence(offered(drawing, request, code, *holdings).as_data())


def resources(**fields: Any) -> dict[str, Any]:
    return {"task_template": {"requested_resources": fields}}


def merged(document: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    result = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result
