"""Every offer holds when it is carried out on the facts and the cluster built anew, and none asks for too much."""

import json
from dataclasses import replace
from itertools import combinations

from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from placement import (
    MachineFacts,
    MachineState,
    Placement,
    Refusal,
    Request,
    Snapshot,
    build_snapshot,
    place,
    words_whatif,
)
from placement.whatif import Code, Named, what_ifs
from tests.placement.carrying_out import carried_out
from tests.placement.strategies import requests
from tests.placement.troubles import CLUSTERS, REQUESTS, strict_requests

STORAGE = frozenset({"store"})
PROPERTY = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))


def refusal_or_skip(snapshot: Snapshot, request: Request) -> Refusal:
    answer = place(snapshot, request)
    if isinstance(answer, Placement):
        reject()
    return answer


@PROPERTY
@given(CLUSTERS, REQUESTS)
def test_every_offer_places_the_run_when_it_is_carried_out(
    cluster: tuple[list[MachineFacts], list[Named]], request: Request
) -> None:
    facts, holdings = cluster
    snapshot = build_snapshot(facts, storage_fabrics=STORAGE)
    refusal = refusal_or_skip(snapshot, request)
    for offer in what_ifs(snapshot, request, refusal, holdings=holdings):
        changed, asked_for = carried_out(facts, request, holdings, offer)
        answer = place(build_snapshot(changed, storage_fabrics=STORAGE), asked_for)
        assert isinstance(answer, Placement), offer.as_data()
        assert answer.as_data() == offer.placement.as_data()
        assert words_whatif.what_if_sentence(offer.as_data())
        json.dumps(offer.as_data())


STATES = {
    Code.UNCORDON: MachineState.READY | MachineState.CORDONED,
    Code.BRING_BACK: MachineState.UNREACHABLE,
}


@PROPERTY
@given(CLUSTERS, st.one_of(requests(), strict_requests()), st.sampled_from(sorted(STATES)), st.data())
def test_no_smaller_number_of_machines_would_do(
    cluster: tuple[list[MachineFacts], list[Named]], request: Request, code: Code, data: st.DataObject
) -> None:
    facts = [
        replace(one, state=data.draw(st.sampled_from([MachineState.READY, STATES[code]])))
        for one in cluster[0]
    ]
    snapshot = build_snapshot(facts, storage_fabrics=STORAGE)
    refusal = refusal_or_skip(snapshot, request)
    found = [
        len(offer.changes[0].numbers["targets"])
        for offer in what_ifs(snapshot, request, refusal)
        if len(offer.changes) == 1 and offer.changes[0].code is code
    ]
    assert found == fewest(facts, request, STATES[code])


def fewest(facts: list[MachineFacts], request: Request, state: MachineState) -> list[int]:
    """The smallest number of machines of which some choice, made ready, places the run; nothing when none does."""
    waiting = [one.name for one in facts if one.state == state]
    for count in range(1, len(waiting) + 1):
        for chosen in combinations(waiting, count):
            mended = [replace(one, state=MachineState.READY) if one.name in chosen else one for one in facts]
            if isinstance(place(build_snapshot(mended, storage_fabrics=STORAGE), request), Placement):
                return [count]
    return []


@PROPERTY
@given(CLUSTERS, st.one_of(requests(), strict_requests()))
def test_a_run_whose_end_alone_is_enough_is_offered(
    cluster: tuple[list[MachineFacts], list[Named]], request: Request
) -> None:
    facts, holdings = cluster
    snapshot = build_snapshot(facts, storage_fabrics=STORAGE)
    refusal = refusal_or_skip(snapshot, request)
    enough = {
        named.holding.key
        for named in holdings
        if isinstance(place(snapshot.released(named.holding.holds), request), Placement)
    }
    offers = what_ifs(snapshot, request, refusal, holdings=holdings)
    single = [offer.changes[0] for offer in offers if len(offer.changes) == 1]
    ends = [change.numbers["runs"] for change in single if change.code is Code.END_RUN]
    assert {runs[0]["key"] for runs in ends if len(runs) == 1} == enough
