"""What would start a run: what the request asks for too much, and what policy and order close, on drawn clusters."""

from dataclasses import replace
from typing import Any

import pytest

from placement import Selection, words_whatif
from placement.whatif import Code
from tests.placement.asking import GIB, plain
from tests.placement.offering import asked, offered, resources, sentence

TWO = """
    gpu-01  H100 ....  pool=p  gpumem=80
    gpu-02  A100 ....  pool=q  gpumem=40  label=zone:a
"""


@pytest.mark.parametrize(
    ("fields", "code", "patch"),
    [
        ({"models": frozenset({"H100"})}, Code.OTHER_MODEL, {"gpu_requests": {"models": []}}),
        ({"min_memory_bytes": 80 * GIB}, Code.GPU_MEMORY, {"gpu_requests": {"min_memory_bytes": 40 * GIB}}),
        (
            {"selection": Selection(pools=frozenset({"p"}))},
            Code.OTHER_POOL,
            {"node_selection": {"pools": ["p", "q"]}},
        ),
        (
            {"selection": Selection(machines=frozenset({"gpu-01"}))},
            Code.ANY_MACHINE,
            {"node_selection": {"mode": "Any", "machines": None}},
        ),
        (
            {"selection": Selection(match_labels={"zone": "a"})},
            Code.FEWER_LABELS,
            {"node_selection": {"mode": "Any", "match_labels": None}},
        ),
        (
            {"selection": Selection(exclude_machines=frozenset({"gpu-02", "gpu-09"}))},
            Code.EXCLUDE_FEWER,
            {"node_selection": {"exclude_machines": ["gpu-09"]}},
        ),
        ({"spread": "rack"}, Code.SPREAD_OFF, {"topology": {"spread": None}}),
        ({"keep_within": "rack"}, Code.KEEP_WITHIN, {"topology": {"keep_within": None}}),
        ({"interconnect": "nvlink"}, Code.INTERCONNECT, {"network": {"interconnect": "any"}}),
        ({"cpu_millicores": 200_000}, Code.LESS_CPU, {"cpu_cores": 128}),
        ({"cpu_millicores_per_gpu": 50_000}, Code.LESS_CPU, {"per_gpu": {"cpu_cores": 32}}),
        ({"memory_bytes": 4096 * GIB}, Code.LESS_MEMORY, {"memory_bytes": 2048 * GIB}),
        ({"memory_bytes_per_gpu": 1024 * GIB}, Code.LESS_MEMORY, {"per_gpu": {"memory_bytes": 512 * GIB}}),
    ],
)
def test_what_the_request_asks_for_too_much(
    fields: dict[str, Any], code: Code, patch: dict[str, Any]
) -> None:
    offer = offered(TWO, plain(gpus=8, machines=2, **fields), code)
    assert offer.document_patch == resources(**patch)


def test_other_pools_are_only_those_that_the_workspace_may_use() -> None:
    request = plain(gpus=8, machines=2, selection=Selection(pools=frozenset({"p"})))
    closed = replace(request, allowed_pools=frozenset({"p"}))
    assert Code.OTHER_POOL in {offer.changes[0].code for offer in asked(TWO, request)}
    assert Code.OTHER_POOL not in {offer.changes[0].code for offer in asked(TWO, closed)}


def test_each_other_model_that_is_enough_is_offered_and_any_model_then_is_not() -> None:
    drawing = "gpu-01 A100 ....\ngpu-02 H200 ....\ngpu-03 H100 ####"
    offers = asked(drawing, plain(gpus=4, machines=1, models=frozenset({"H100"})))
    instead = [
        offer.changes[0].numbers["instead"] for offer in offers if offer.changes[0].code == "other_model"
    ]
    assert instead == [["A100"], ["H200"]]


def test_the_gpus_in_other_slices() -> None:
    drawing = "\n".join(f"gpu-0{number} H100 ..##" for number in range(1, 5))
    request = plain(gpus=8, machines=2)
    assert offered(drawing, request, Code.MACHINES).document_patch == resources(machines=4)
    assert sentence(drawing, request, Code.MACHINES) == (
        "Ask for 4 machines with 2 GPUs each instead of 2: it would start on gpu-01 to gpu-04, Ethernet"
    )
    assert sentence(drawing, request, Code.MACHINES_FREE) == (
        "Let Astraeus choose the number of machines instead of 2: it would start on gpu-01 to gpu-04, Ethernet; "
        "2 GPUs on each"
    )


def test_a_range_is_widened_as_far_as_is_needed() -> None:
    drawing = "\n".join(f"gpu-0{number} H100 ..##" for number in range(1, 5))
    request = plain(gpus=8, min_nodes=1, max_nodes=2)
    assert offered(drawing, request, Code.NODE_RANGE).document_patch == resources(
        topology={"min_nodes": 1, "max_nodes": 4}
    )


def test_the_largest_slice_below_min_per_machine() -> None:
    drawing = "\n".join(f"gpu-0{number} H100 ..##" for number in range(1, 5))
    request = plain(gpus=8, min_per_machine=4)
    assert offered(drawing, request, Code.MIN_PER_MACHINE).document_patch == resources(
        gpu_requests={"min_per_machine": 2}
    )


def test_the_largest_number_of_gpus_where_astraeus_chooses() -> None:
    drawing = "gpu-01 H100 ....\ngpu-02 H100 ..##"
    offer = offered(drawing, plain(gpus=8), Code.FEWER_GPUS)
    assert offer.changes[0].numbers == {"asked": 8, "instead": 4}


def test_amounts_in_place_of_a_share_that_others_have_taken() -> None:
    drawing = "gpu-01 H100 ..##  cpu=20.5 mem=300"
    offer = offered(drawing, plain(gpus=2, machines=1), Code.FIXED_AMOUNTS)
    assert offer.document_patch == resources(cpu_cores=20, memory_bytes=300 * GIB)


CLOSED = """
    gpu-01  H100 ....  pool=p
    gpu-02  H100 ....  pool=q
"""


@pytest.mark.parametrize(
    ("policy", "code", "patch", "expected"),
    [
        (
            {"guaranteed_to_others": frozenset({"q"})},
            Code.PREEMPTIBLE,
            {"preemptible": True},
            "Make the run preemptible, so that it may borrow from pool q",
        ),
        (
            {"over_cap": frozenset({"q", "unused"})},
            Code.RAISE_CAP,
            None,
            "Raise this workspace's cap in pool q",
        ),
        (
            {"reserved": frozenset({"gpu-02", "gpu-09"})},
            Code.WAIT_RESERVED,
            None,
            "Wait for the run that gpu-02 is reserved for",
        ),
    ],
)
def test_what_policy_and_order_close(
    policy: dict[str, Any], code: Code, patch: dict[str, Any] | None, expected: str
) -> None:
    request = replace(plain(gpus=8, machines=2), **policy)
    offer = offered(CLOSED, request, code)
    assert offer.document_patch == patch
    assert words_whatif.changes_words(offer.as_data()) == expected
