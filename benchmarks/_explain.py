"""The full explanation of a refusal: every machine, every domain, what would start it, all in words."""

from statistics import median

from benchmarks._fleet import CORES_PER_GPU, MEMORY_PER_GPU, Fleet, Tenant
from benchmarks._measure import timed
from benchmarks._requests import Requests
from placement import Refusal, Request, Snapshot, place, words
from placement.holdings import Hold, Holding
from placement.whatif import Named, what_ifs
from placement.words_whatif import what_if_sentence

LEAST_VARIANTS = 20
"""Changes put through the engine; an explanation that tried fewer is not counted."""


def explain_ms(snapshot: Snapshot, fleet: Fleet, rounds: int) -> float:
    """The median over refusals of gangs that ask for more whole machines than any fabric, or any rack, has free."""
    tenants = [named(tenant) for tenant in fleet.tenants]
    requests = Requests(fleet, seed=3)
    times: list[float] = []
    while len(times) < rounds + 1:
        request = refused(requests)
        if not isinstance(place(snapshot, request), Refusal):
            continue
        took, variants = timed(lambda request=request: explain(snapshot, request, tenants))  # type: ignore[misc]
        if variants >= LEAST_VARIANTS:
            times.append(took)
    return median(times[1:])


def refused(requests: Requests) -> Request:
    """A gang that the fleet has hardly room for; every second one must be in one rack."""
    if requests.random.random() < 0.5:
        return requests.gang(requests.random.choice((6, 8, 12)), keep_within="rack")
    return requests.gang(requests.random.choice((128, 192, 256)), keep_within="fabric")


def explain(snapshot: Snapshot, request: Request, tenants: list[Named]) -> int:
    """How many variants were tried for it."""
    refusal = place(snapshot, request)
    assert isinstance(refusal, Refusal)
    data = refusal.as_data()
    words.headline(data)
    for row in data["rows"]:
        words.machine_sentence(row, data["asked"])
    offers = what_ifs(snapshot, request, refusal, holdings=tenants)
    for offer in offers:
        what_if_sentence(offer.as_data())
    return offers.tried


def named(tenant: Tenant) -> Named:
    """The tenant as the explanation is given it."""
    return Named(holding_of(tenant), tenant.name, preemptible=tenant.key % 4 == 0)


def holding_of(tenant: Tenant) -> Holding:
    return Holding(
        tenant.key,
        tuple(
            Hold(machine, gpus, CORES_PER_GPU * 1000 * len(gpus), MEMORY_PER_GPU * len(gpus))
            for machine, gpus in tenant.holds.items()
        ),
        tenant.ends_in,
    )
