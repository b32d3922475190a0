"""Every what-if that is offered does start the run: made to the facts and the request, checked the naive way."""

import json

from placement import MachineFacts, Request, build_snapshot
from placement.whatif import Named, WhatIf, what_ifs
from placement.words_whatif import what_if_sentence
from tests.placement.changes import holdings_on, patched, undergone
from tests.placement.examples import engine, holds_for, refused_at_random
from tests.placement.legality import assert_legal
from tests.placement.strategies import STORAGE, clusters, requests


def offers(machines: list[MachineFacts], request: Request) -> tuple[WhatIf, ...]:
    refusal = refused_at_random(machines, request)
    snapshot = build_snapshot(machines, storage_fabrics=STORAGE)
    named = [Named(holding, f"run-{holding.key}", holding.key % 2 == 0) for holding in holdings_on(machines)]
    return what_ifs(snapshot, request, refusal, holdings=named)


def assert_places(machines: list[MachineFacts], request: Request, offer: WhatIf) -> None:
    """After the change the engine places the run just so, and the naive rules agree."""
    data = json.loads(json.dumps(offer.as_data()))
    after, asked = list(machines), patched(request, data["document_patch"] or {})
    for change in data["changes"]:
        after, asked = undergone(after, asked, change, holdings_on(machines))
    assert (after, asked) != (machines, request), "nothing would change"
    assert "it would start on" in what_if_sentence(data)
    assert_legal(after, asked, offer.placement, STORAGE)
    now = engine(after, asked)
    assert now.as_data()["groups"] == offer.placement.as_data()["groups"]


@holds_for(clusters(), requests(), share=0.8)
def test_every_what_if_that_is_offered_does_place(machines, request):
    for offer in offers(machines, request):
        assert_places(machines, request, offer)


@holds_for(clusters(), requests(groups=2), share=0.4)
def test_for_a_gang_of_two_groups_too(machines, request):
    for offer in offers(machines, request):
        assert_places(machines, request, offer)


@holds_for(clusters(most=4), requests(), share=0.4)
def test_what_one_change_does_is_offered_once(machines, request):
    made = [offer.as_data()["changes"] for offer in offers(machines, request)]
    assert all(changes not in made[:number] for number, changes in enumerate(made))
