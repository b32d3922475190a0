"""What would start a run: exact offers on drawn clusters, and that every offer holds when it is carried out."""

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from placement import (
    GpuFacts,
    GroupRequest,
    MachineFacts,
    MachineState,
    Placement,
    PortFacts,
    Refusal,
    Request,
    Selection,
    Snapshot,
    build_snapshot,
    place,
    words_whatif,
)
from placement.holdings import Hold, Holding
from placement.whatif import Code, Named, WhatIf, WhatIfs, what_ifs
from tests.placement.asking import GIB, plain, reference, refused_on, snapshot_of
from tests.placement.strategies import clusters, requests
from wire.spec import parse_document

STORAGE = frozenset({"store"})
PROPERTY = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))


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


GUIDE = """
    gpu-01  H100 ....|....  ib:ib-a  rack=r1
    gpu-02  H100 ....|####  ib:ib-a  rack=r1  cpu=80 mem=1648
    gpu-03  H100 ....|.?..  ib:ib-a  rack=r2
    gpu-04  H100 ....|....  ib:ib-a  rack=r2  state=ready,cordoned
    gpu-09  H100 ####|####  ib:ib-b  cpu=32 mem=1248
    gpu-10  H100 ####|####  ib:ib-b  cpu=32 mem=1248
    gpu-21  A100 ....|....  ib:ib-a
"""


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


SLOW = """
    gpu-01  H100 ....|....  ib:ib-a  rack=r1
    gpu-02  H100 ....|....  ib:ib-a@200  rack=r1
    gpu-03  H100 ....|....  ib:ib-a@100  rack=r1
    gpu-04  H100 ....|....  ib:ib-a-down  rack=r1
"""


def test_the_nearest_speed_that_is_there_is_offered() -> None:
    offer = offered(SLOW, reference(), Code.MIN_GBPS)
    assert offer.changes[0].numbers == {"asked": 400, "instead": 200}
    assert offer.document_patch == resources(network={"min_gbps": 200})
    assert sentence(SLOW, reference(), Code.MIN_GBPS) == (
        "Ask for at least 200 Gb/s instead of 400: it would start on gpu-01 and gpu-02, "
        "one rack on one InfiniBand fabric"
    )


def test_one_port_is_enough() -> None:
    offer = offered(SLOW, reference(), Code.BRING_PORT_UP)
    assert offer.changes[0].numbers == {"targets": [{"machine": "gpu-04", "port": "mlx5_0:1", "gbps": 400}]}
    assert sentence(SLOW, reference(), Code.BRING_PORT_UP) == (
        "Bring port mlx5_0 of gpu-04 up: it would start on gpu-01 and gpu-04, one rack on one InfiniBand fabric"
    )


def test_a_port_on_another_fabric_does_not_hide_the_one_that_is_down() -> None:
    drawing = """
        gpu-01  H100 ....|....  ib:ib-a
        gpu-02  H100 ....|....  ib:ib-ax2-down  ib:ib-bx2
    """
    numbers = offered(drawing, reference(), Code.BRING_PORT_UP).changes[0].numbers
    assert numbers == {"targets": [{"machine": "gpu-02", "port": "mlx5_0:1", "gbps": 400}]}


UNLABELLED = """
    gpu-01  H100 ....|....  ib:ib-a  rack=r1
    gpu-02  H100 ....|....  ib:ib-a
    gpu-03  H100 ....|...x  ib:ib-a  rack=r1
    gpu-04  H100 ....|....  ib:      rack=r1
"""


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (
            Code.KEEP_WITHIN,
            (
                "Keep the workers within one fabric instead of one rack: it would start on gpu-01 and gpu-02, "
                "one InfiniBand fabric"
            ),
        ),
        (
            Code.SET_RACK,
            (
                "Set the rack of gpu-02 to r1, if it is there: it would start on gpu-01 and gpu-02, "
                "one rack on one InfiniBand fabric"
            ),
        ),
        (
            Code.SET_FABRIC,
            (
                "Set the fabric of gpu-04 to ib-a, if it is on it: it would start on gpu-01 and gpu-04, "
                "one rack on one InfiniBand fabric"
            ),
        ),
        (
            Code.REPAIR_GPU,
            (
                "Repair or replace GPU 7 of gpu-03: it would start on gpu-01 and gpu-03, "
                "one rack on one InfiniBand fabric"
            ),
        ),
    ],
)
def test_a_label_that_is_missing_a_gpu_that_is_faulty(code: Code, expected: str) -> None:
    assert sentence(UNLABELLED, reference(keep_within="rack"), code) == expected


def test_an_nvlink_domain_that_is_missing() -> None:
    drawing = """
        gpu-01  H100 ....  nvl=d1
        gpu-02  H100 ....
    """
    request = plain(gpus=8, machines=2, interconnect="nvlink")
    assert sentence(drawing, request, Code.SET_NVLINK_DOMAIN) == (
        "Set the NVLink domain of gpu-02 to d1, if it is in it: it would start on gpu-01 and gpu-02, "
        "one NVLink domain"
    )


def test_as_few_machines_as_are_needed_where_least_is_lacking() -> None:
    """r1 lacks one machine, r2 would need both of its own."""
    drawing = """
        gpu-01  H100 ....  ib:ib-a  rack=r1
        gpu-02  H100 ....  ib:ib-a  rack=r1  state=ready,cordoned
        gpu-03  H100 ....  ib:ib-a  rack=r1  state=ready,cordoned
        gpu-04  H100 ....  ib:ib-a  rack=r2  state=ready,cordoned
        gpu-05  H100 ....  ib:ib-a  rack=r2  state=ready,cordoned
    """
    request = plain(gpus=8, machines=2, interconnect="infiniband", keep_within="rack")
    assert offered(drawing, request, Code.UNCORDON).changes[0].numbers == {"targets": [{"machine": "gpu-02"}]}


@pytest.mark.parametrize(
    ("state", "code", "expected"),
    [
        ("ready,cordoned", Code.UNCORDON, "Uncordon gpu-02"),
        ("ready,draining", Code.UNDRAIN, "Stop draining gpu-02"),
        ("ready,draining,cordoned", Code.UNDRAIN, "Stop draining gpu-02"),
        ("quarantined", Code.END_QUARANTINE, "End the quarantine of gpu-02"),
        ("ready,stale_agent", Code.UPDATE_AGENT, "Update the agent of gpu-02"),
        ("unreachable", Code.BRING_BACK, "Bring gpu-02 back"),
        ("", Code.BRING_BACK, "Bring gpu-02 back"),
    ],
)
def test_a_machine_that_takes_no_work(state: str, code: Code, expected: str) -> None:
    drawing = f"""
        gpu-01  H100 ....
        gpu-02  H100 ....  state={state}
    """
    end = ": it would start on gpu-01 and gpu-02, Ethernet"
    assert sentence(drawing, plain(gpus=8, machines=2), code) == expected + end


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


# Properties: what is offered is carried out on the facts, and the cluster built anew.


@st.composite
def busy_clusters(draw: st.DrawFn) -> tuple[list[MachineFacts], list[Named]]:
    """A cluster, and runs that hold its held GPUs: a machine's all together, or two runs sharing them."""
    facts = draw(clusters())
    shares: dict[int, list[Hold]] = {}
    for machine in facts:
        held = tuple(gpu.index for gpu in machine.gpus if gpu.held)
        cpu = machine.cpu_millicores - machine.cpu_free_millicores
        memory = machine.memory_bytes - machine.memory_free_bytes
        if not held and not cpu and not memory:
            continue
        first, second = draw(st.sampled_from([(1, 1), (1, 2), (2, 3), (3, 3)]))
        cut = draw(st.integers(0, len(held)))
        parts = [(first, held)] if first == second else [(first, held[:cut]), (second, held[cut:])]
        for number, (key, gpus) in enumerate(parts):
            hold = Hold(machine.name, gpus, 0 if number else cpu, 0 if number else memory)
            shares.setdefault(key, []).append(hold)
    named = [Named(Holding(key, tuple(holds), None), f"run-{key}", key == 2) for key, holds in shares.items()]
    return facts, named


def carried_out(
    facts: Sequence[MachineFacts], request: Request, holdings: Sequence[Named], offer: WhatIf
) -> tuple[list[MachineFacts], Request]:
    """The cluster and the request as the offer would have them, by the sentences' words rather than by arrays."""
    by_name = {machine.name: machine for machine in facts}
    if offer.document_patch:
        request = request_patched(request, offer.document_patch)
    for change in offer.changes:
        for target in change.numbers.get("targets", ()):
            by_name[target["machine"]] = machine_mended(by_name[target["machine"]], change.code, target)
        for ended in change.numbers.get("runs", ()):
            [holding] = [named.holding for named in holdings if named.holding.key == ended["key"]]
            for hold in holding.holds:
                by_name[hold.machine] = machine_freed(by_name[hold.machine], hold)
        if change.code is Code.RAISE_CAP:
            request = replace(request, over_cap=request.over_cap - set(change.numbers["pools"]))
        if change.code is Code.WAIT_RESERVED:
            request = replace(request, reserved=request.reserved - set(change.numbers["machines"]))
    return list(by_name.values()), request


def machine_freed(machine: MachineFacts, hold: Hold) -> MachineFacts:
    return replace(
        machine,
        cpu_free_millicores=machine.cpu_free_millicores + hold.cpu_millicores,
        memory_free_bytes=machine.memory_free_bytes + hold.memory_bytes,
        gpus=tuple(replace(gpu, held=gpu.held and gpu.index not in hold.gpus) for gpu in machine.gpus),
    )


def machine_mended(machine: MachineFacts, code: Code, target: dict[str, Any]) -> MachineFacts:
    fields: dict[str, Any] = {}
    match code:
        case Code.UNCORDON:
            fields = {"state": machine.state & ~MachineState.CORDONED}
        case Code.UNDRAIN | Code.END_QUARANTINE | Code.UPDATE_AGENT | Code.BRING_BACK:
            fields = {"state": MachineState.READY}
        case Code.CLEAR_SUSPECT | Code.REPAIR_GPU:
            fields = {"gpus": tuple(gpu_mended(gpu, target["gpus"]) for gpu in machine.gpus)}
        case Code.BRING_PORT_UP:
            fields = {"ports": tuple(port_up(port, target["port"]) for port in machine.ports)}
        case Code.SET_RACK:
            fields = {"rack": target["value"]}
        case Code.SET_NVLINK_DOMAIN:
            fields = {"nvlink_domain": target["value"]}
        case Code.SET_FABRIC:
            fields = {"ports": tuple(port_on(port, target["value"]) for port in machine.ports)}
    assert fields, code
    return replace(machine, **fields)


def gpu_mended(gpu: GpuFacts, mended: Sequence[int]) -> GpuFacts:
    return replace(gpu, suspect=False, faulty=False) if gpu.index in mended else gpu


def port_up(port: PortFacts, name: str) -> PortFacts:
    return replace(port, up=True) if port.name == name else port


def port_on(port: PortFacts, fabric: str) -> PortFacts:
    return replace(port, fabric=fabric) if port.link == "infiniband" else port


def request_patched(request: Request, patch: dict[str, Any]) -> Request:
    by_group = {name: part["task_template"] for name, part in patch.get("worker_groups", {}).items()}
    if "task_template" in patch:
        by_group[request.groups[0].name] = patch["task_template"]
    if patch.get("preemptible"):
        request = replace(request, guaranteed_to_others=frozenset())
    groups = tuple(
        group_patched(group, by_group[group.name]["requested_resources"]) if group.name in by_group else group
        for group in request.groups
    )
    return replace(request, groups=groups)


def group_patched(group: GroupRequest, resources: dict[str, Any]) -> GroupRequest:
    fields: dict[str, Any] = {}
    gpus = resources.get("gpu_requests", {})
    names = {"count": "gpus", "healthy_only": "healthy_only", "min_per_machine": "min_per_machine"}
    fields |= {names[key]: value for key, value in gpus.items() if key in names}
    if "models" in gpus:
        fields["models"] = frozenset(gpus["models"])
    if "min_memory_bytes" in gpus:
        fields["min_memory_bytes"] = gpus["min_memory_bytes"] or 0
    fields |= resources.get("topology", {}) | resources.get("network", {})
    fields |= {key: resources[key] for key in ("machines", "memory_bytes") if key in resources}
    if "cpu_cores" in resources:
        fields["cpu_millicores"] = 1000 * resources["cpu_cores"]
    if "cpu_cores" in resources.get("per_gpu", {}):
        fields["cpu_millicores_per_gpu"] = 1000 * resources["per_gpu"]["cpu_cores"]
    if "memory_bytes" in resources.get("per_gpu", {}):
        fields["memory_bytes_per_gpu"] = resources["per_gpu"]["memory_bytes"]
    if "node_selection" in resources:
        fields["selection"] = selection_patched(group.selection, resources["node_selection"])
    return replace(group, **fields)


def selection_patched(selection: Selection, patch: dict[str, Any]) -> Selection:
    fields: dict[str, Any] = {
        key: None if patch[key] is None else frozenset(patch[key])
        for key in ("pools", "machines", "exclude_machines")
        if key in patch
    }
    if "match_labels" in patch:
        fields["match_labels"] = merged(selection.match_labels, patch["match_labels"]) or {}
    return replace(selection, **fields)


SOUND = MachineFacts(
    name="",
    pool="p",
    cpu_millicores=16_000,
    cpu_free_millicores=16_000,
    memory_bytes=64 * GIB,
    memory_free_bytes=64 * GIB,
    gpus=tuple(GpuFacts(index=index, id=index, model="H100", memory_bytes=80 * GIB) for index in range(4)),
    ports=tuple(PortFacts(f"mlx5_{number}:1", gbps=400, fabric="ib-a") for number in range(2)),
    rack="r1",
    nvlink_domain="d1",
    labels={"zone": "a"},
)


def each_gpu(**fields: Any) -> dict[str, Any]:
    return {"gpus": tuple(replace(gpu, **fields) for gpu in SOUND.gpus)}


def first_gpu(**fields: Any) -> dict[str, Any]:
    return {"gpus": (replace(SOUND.gpus[0], **fields), *SOUND.gpus[1:])}


def each_port(**fields: Any) -> dict[str, Any]:
    return {"ports": tuple(replace(port, **fields) for port in SOUND.ports)}


TROUBLES: list[dict[str, Any]] = [
    {"state": MachineState.READY | MachineState.CORDONED},
    {"state": MachineState.READY | MachineState.DRAINING | MachineState.CORDONED},
    {"state": MachineState.UNREACHABLE},
    {"pool": "q"},
    {"pool": "r"},
    {"rack": None},
    {"rack": "r2"},
    {"nvlink_domain": None},
    {"nvlink_domain": "d2"},
    {"labels": {}},
    {"cpu_free_millicores": 9_000},
    {"memory_free_bytes": 30 * GIB},
    each_port(up=False),
    each_port(gbps=200),
    each_port(gbps=0),
    each_port(fabric=None),
    each_port(fabric="ib-b"),
    each_port(link="ethernet"),
    each_gpu(model="A100"),
    each_gpu(memory_bytes=40 * GIB),
    each_gpu(held=True),
    first_gpu(held=True),
    first_gpu(suspect=True),
    first_gpu(faulty=True),
    first_gpu(held=True, suspect=True),
]


@st.composite
def troubled_clusters(draw: st.DrawFn) -> tuple[list[MachineFacts], list[Named]]:
    """Alike machines, most of them with one trouble or two: little is missing for a gang on all of them."""
    facts = []
    for number in range(draw(st.integers(2, 4))):
        troubles = draw(st.lists(st.sampled_from(TROUBLES), max_size=2))
        fields = {name: value for trouble in troubles for name, value in trouble.items()}
        facts.append(replace(SOUND, **{"name": f"m{number}", "id": number, **fields}))
    return facts, held_by(facts, draw(st.booleans()))


def held_by(facts: list[MachineFacts], together: bool) -> list[Named]:
    """Held GPUs in one run, or in one on each machine."""
    holds = [
        Hold(machine.name, tuple(gpu.index for gpu in machine.gpus if gpu.held), 0, 0) for machine in facts
    ]
    runs = [tuple(holds)] if together else [(hold,) for hold in holds if hold.gpus]
    return [Named(Holding(key, part, None), f"run-{key}", False) for key, part in enumerate(runs)]


@st.composite
def strict_requests(draw: st.DrawFn) -> Request:
    """One group that asks for the sound machines, as many as there are or one fewer."""
    count = draw(st.integers(1, 3))
    selections = [
        Selection(),
        Selection(),
        Selection(pools=frozenset({"p"})),
        Selection(match_labels={"zone": "a", "disk": "fast"}),
        Selection(match_labels={"zone": "a"}),
        Selection(machines=frozenset({"m0", "m1"})),
        Selection(exclude_machines=frozenset({"m0", "m1"})),
    ]
    group = GroupRequest(
        gpus=4 * count,
        machines=count,
        models=draw(st.sampled_from([frozenset(), frozenset({"H100"})])),
        healthy_only=draw(st.booleans()),
        min_memory_bytes=draw(st.sampled_from([0, 80 * GIB])),
        cpu_millicores_per_gpu=draw(st.sampled_from([None, 4_000])),
        memory_bytes_per_gpu=draw(st.sampled_from([None, 16 * GIB])),
        interconnect=draw(st.sampled_from(["any", "rdma", "infiniband", "infiniband", "nvlink"])),
        min_gbps=draw(st.sampled_from([None, 400, 400])),
        keep_within=draw(st.sampled_from([None, "rack", "fabric"])),
        spread=draw(st.sampled_from([None, None, None, "rack"])),
        selection=draw(st.sampled_from(selections)),
    )
    return Request((group,), reserved=draw(st.sampled_from([frozenset[str](), frozenset({"m1"})])))


CLUSTERS = st.one_of(busy_clusters(), troubled_clusters(), troubled_clusters())


@st.composite
def closed_requests(draw: st.DrawFn) -> Request:
    """Mostly one group; sometimes policy or order close something."""
    request = draw(requests(groups=draw(st.sampled_from([1, 1, 1, 2]))))
    nothing: frozenset[str] = frozenset()
    pools, machines = (
        [nothing, nothing, nothing, frozenset({"p"})],
        [nothing, nothing, frozenset({"m0", "m1"})],
    )
    return replace(
        request,
        over_cap=draw(st.sampled_from(pools)),
        guaranteed_to_others=draw(st.sampled_from(pools)),
        reserved=draw(st.sampled_from(machines)),
    )


REQUESTS = st.one_of(closed_requests(), strict_requests(), strict_requests())


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
