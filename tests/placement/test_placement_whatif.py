"""What would start a run: all that is offered of one drawn cluster, as sentences and as data, alone and in pairs."""

import json
from dataclasses import replace
from typing import Any

import pytest

from placement import GroupRequest, Request, words_whatif
from placement.whatif import Code, Named
from tests.placement.asking import GIB, reference
from tests.placement.offering import GUIDE, SLOW, asked, merged, offered, resources, run, told
from wire.spec import parse_document


def test_the_guides_run_is_told_every_single_change_that_starts_it() -> None:
    eval_3 = run(7, "eval-3", ends_at=100.0, gpu_02="4567")
    llm_7 = run(8, "llm-7", gpu_09="01234567", gpu_10="01234567")
    assert told(GUIDE, reference(), eval_3, llm_7) == [
        (
            "Let GPUs with a warning sign be used too: it would start on gpu-01 and gpu-03, one InfiniBand fabric; "
            "uses GPU 5 of gpu-03, suspect"
        ),
        "Accept any GPU model instead of H100: it would start on gpu-01 and gpu-21, one InfiniBand fabric",
        (
            "Ask for 14 GPUs instead of 16: it would start on gpu-01 and gpu-03, one InfiniBand fabric; "
            "7 GPUs on each"
        ),
        "Ask for 1 machine and 8 GPUs instead of 2 and 16: it would start on gpu-01, one machine",
        "Uncordon gpu-04: it would start on gpu-01 and gpu-04, one InfiniBand fabric",
        (
            "Check GPU 5 of gpu-03 and clear its warning: it would start on gpu-01 and gpu-03, "
            "one InfiniBand fabric"
        ),
        (
            "Stop eval-3 (4 GPUs) or wait for it to end: it would start on gpu-01 and gpu-02, "
            "one rack on one InfiniBand fabric"
        ),
        "Stop llm-7 (16 GPUs) or wait for it to end: it would start on gpu-09 and gpu-10, one InfiniBand fabric",
    ]


def test_an_offer_as_data_holds_the_change_its_patch_and_the_place() -> None:
    offer = asked(GUIDE, reference())[0]
    assert offer.as_data() == {
        "changes": [{"code": "healthy_only_off", "kind": "request", "group": "", "numbers": {}}],
        "document_patch": resources(gpu_requests={"healthy_only": False}),
        "placement": {
            "verdict": "ib_fabric",
            "groups": [
                {
                    "group": "",
                    "verdict": "ib_fabric",
                    "shape": {"machines": 2, "gpus": 8},
                    "machines": ["gpu-01", "gpu-03"],
                    "suspects": [{"machine": "gpu-03", "gpus": [5]}],
                }
            ],
        },
    }


def test_a_run_to_wait_for_is_told_with_its_key_and_time_limit() -> None:
    holder = run(7, "eval-3", preemptible=True, ends_at=100.0, gpu_02="4567")
    offer = offered(GUIDE, reference(), Code.END_RUN, holder)
    assert offer.document_patch is None
    assert offer.changes[0].numbers == {
        "runs": [{"key": 7, "name": "eval-3", "preemptible": True, "gpus": 4, "ends_at": 100.0}]
    }


def test_all_changes_tried_are_counted() -> None:
    every = asked(GUIDE, reference())
    assert every.tried > len(every)


def test_no_more_engine_calls_than_allowed() -> None:
    assert len(asked(GUIDE, reference(), limit=1)) == 1
    assert asked(GUIDE, reference(), limit=0) == ()


def test_two_changes_only_where_no_single_one_helps() -> None:
    drawing = """
        gpu-01  H100 ....|....  ib:ib-a
        gpu-02  H100 ....|..?.  ib:ib-a  state=ready,cordoned
    """
    assert told(drawing, reference()) == [
        "Ask for 1 machine and 8 GPUs instead of 2 and 16: it would start on gpu-01, one machine",
        (
            "Let GPUs with a warning sign be used too and uncordon gpu-02: it would start on gpu-01 and gpu-02, "
            "one InfiniBand fabric; uses GPU 6 of gpu-02, suspect"
        ),
        (
            "Uncordon gpu-02 and check GPU 6 of gpu-02 and clear its warning: it would start on gpu-01 and gpu-02, "
            "one InfiniBand fabric"
        ),
    ]


def test_two_fields_that_ask_for_the_same_are_dropped_together() -> None:
    drawing = """
        gpu-01  H100 ....|....  ib:ib-a
        gpu-02  H100 ....|....  ib:ib-b
    """
    [pair] = [offer for offer in asked(drawing, reference()) if len(offer.changes) == 2]
    assert words_whatif.what_if_sentence(pair.as_data()) == (
        "Accept any network instead of InfiniBand only and don't keep the workers within one fabric: "
        "it would start on gpu-01 and gpu-02, Ethernet"
    )
    assert pair.document_patch == resources(network={"interconnect": "any"}, topology={"keep_within": None})


def test_two_changes_to_the_cluster_name_only_what_is_needed() -> None:
    drawing = """
        gpu-01  H100 ....|....  ib:ib-a
        gpu-02  H100 ....|....  ib:ib-a-down  state=ready,cordoned
        gpu-03  A100 ....|....  ib:ib-a-down  state=ready,cordoned
    """
    [pair] = [offer for offer in asked(drawing, reference()) if len(offer.changes) == 2]
    assert [(change.code, change.numbers["targets"]) for change in pair.changes] == [
        (Code.UNCORDON, [{"machine": "gpu-02"}]),
        (Code.BRING_PORT_UP, [{"machine": "gpu-02", "port": "mlx5_0:1", "gbps": 400}]),
    ]


@pytest.mark.parametrize(
    "holders",
    [
        (run(1, "a", gpu_01="01234567"), run(2, "b", gpu_02="01234567")),
        (run(1, "a", gpu_01="0123", gpu_02="0123"), run(2, "b", gpu_01="4567", gpu_02="4567")),
    ],
    ids=["each on one machine", "both on both"],
)
def test_two_runs_together(holders: tuple[Named, ...]) -> None:
    drawing = """
        gpu-01  H100 ####|####  ib:ib-a  cpu=32 mem=1248
        gpu-02  H100 ####|####  ib:ib-a  cpu=32 mem=1248
    """
    assert told(drawing, reference(), *holders) == [
        (
            "Stop a (8 GPUs) and b (8 GPUs) or wait for them to end: it would start on gpu-01 and gpu-02, "
            "one InfiniBand fabric"
        )
    ]


GROUPS = """
    gpu-01  H100 ....  pool=p
    gpu-02  H100 ..?.  pool=p
    gpu-03  A100 ....  pool=p
"""


def group(name: str, **fields: Any) -> GroupRequest:
    return GroupRequest(name=name, gpus=4, machines=1, **fields)


def test_the_group_that_is_refused_is_the_one_that_changes() -> None:
    request = Request(
        (group("a"), replace(group("b", models=frozenset({"H100"})), machines=2, gpus=8, healthy_only=True))
    )
    offer = offered(GROUPS, request, Code.HEALTHY_ONLY_OFF)
    patch = resources(gpu_requests={"healthy_only": False})
    assert offer.document_patch == {"worker_groups": {"b": patch}}
    assert words_whatif.what_if_sentence(offer.as_data()) == (
        "In group b, let GPUs with a warning sign be used too: it would start on a: gpu-03, one machine; "
        "b: gpu-01 and gpu-02, Ethernet; uses GPU 2 of gpu-02, suspect"
    )


def test_groups_in_each_others_way_may_each_change() -> None:
    h100 = frozenset({"H100"})
    request = Request(
        (group("a", models=h100, healthy_only=True), group("b", models=h100, healthy_only=True))
    )
    changes = {
        (offer.changes[0].code, offer.changes[0].group): [rank.machine_name for rank in offer.placement.ranks]
        for offer in asked(GROUPS, request)
        if len(offer.changes) == 1
    }
    assert changes[Code.HEALTHY_ONLY_OFF, "a"] == ["gpu-02", "gpu-01"]
    assert changes[Code.HEALTHY_ONLY_OFF, "b"] == ["gpu-01", "gpu-02"]
    assert changes[Code.OTHER_MODEL, "a"] == ["gpu-03", "gpu-01"]


DOCUMENT: dict[str, Any] = {
    "metadata": {"name": "ddp"},
    "spec": {
        "task_template": {
            "image": "pytorch/pytorch:2.8.0",
            "command": "python train.py",
            "requested_resources": {
                "machines": 2,
                "gpu_requests": {"count": 16, "models": ["H100"], "healthy_only": True},
                "per_gpu": {"cpu_cores": 12, "memory_bytes": 100 * GIB},
                "network": {"interconnect": "infiniband", "min_gbps": 400},
                "topology": {"keep_within": "fabric"},
            },
        }
    },
}


@pytest.mark.parametrize("drawing", [GUIDE, SLOW], ids=["guide", "slow"])
def test_a_patched_run_document_is_one(drawing: str) -> None:
    patches = [offer.document_patch for offer in asked(drawing, reference())]
    for patch in filter(None, patches):
        document = json.dumps(merged(DOCUMENT, {"spec": patch}))
        assert parse_document(document)
