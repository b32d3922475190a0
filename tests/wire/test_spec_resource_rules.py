"""Refused requests for resources: the change, and the exact path, code and sentence that it gets."""

from typing import Any

import pytest

from tests.wire.refusals import (
    GONE,
    Found,
    R,
    changed,
    found,
)

RULES: list[tuple[str, list[tuple[str, Any]], Found]] = [
    (
        "count not divisible",
        [(f"{R}.gpu_requests.count", 17), (f"{R}.machines", 2)],
        [
            (
                f"{R}.gpu_requests.count",
                "not_divisible",
                "17 GPUs can't be split evenly over 2 machines. Use 16 or 18.",
            )
        ],
    ),
    (
        "fewer GPUs than machines",
        [(f"{R}.gpu_requests.count", 1), (f"{R}.machines", 2)],
        [(f"{R}.gpu_requests.count", "not_divisible", "1 GPU can't be split evenly over 2 machines. Use 2.")],
    ),
    (
        "no number in the range divides",
        [(f"{R}.gpu_requests.count", 17), (f"{R}.topology", {"min_nodes": 2, "max_nodes": 4})],
        [
            (
                f"{R}.gpu_requests.count",
                "no_divisor_in_range",
                "17 GPUs can't be split evenly over 2 to 4 machines. Use 16 or 18.",
            )
        ],
    ),
    (
        "an open range above the count",
        [(f"{R}.topology", {"min_nodes": 17})],
        [
            (
                f"{R}.topology.min_nodes",
                "no_divisor_in_range",
                "16 GPUs can't be split over 17 or more machines. Use at most 16.",
            )
        ],
    ),
    (
        "an open range without GPUs",
        [(f"{R}.gpu_requests", GONE), (f"{R}.topology", {"min_nodes": 2})],
        [
            (
                f"{R}.topology.max_nodes",
                "missing",
                "`max_nodes` is missing. Without GPUs a range needs both of its ends.",
            )
        ],
    ),
    (
        "min_per_machine that the exact number does not leave",
        [(f"{R}.machines", 4), (f"{R}.gpu_requests.min_per_machine", 8)],
        [
            (
                f"{R}.gpu_requests.min_per_machine",
                "min_per_machine_unreachable",
                "No allowed split of 16 GPUs leaves 8 on one machine. Use at most 4.",
            )
        ],
    ),
    (
        "min_per_machine above the count",
        [(f"{R}.gpu_requests.min_per_machine", 17)],
        [
            (
                f"{R}.gpu_requests.min_per_machine",
                "min_per_machine_unreachable",
                "No allowed split of 16 GPUs leaves 17 on one machine. Use at most 16.",
            )
        ],
    ),
    (
        "machines and a range",
        [(f"{R}.machines", 2), (f"{R}.topology", {"min_nodes": 2})],
        [
            (
                f"{R}.machines",
                "machines_and_range",
                "Give either `machines` or `topology.min_nodes`/`max_nodes`, not both.",
            )
        ],
    ),
    (
        "the range is upside down",
        [(f"{R}.topology", {"min_nodes": 4, "max_nodes": 2})],
        [
            (
                f"{R}.topology.min_nodes",
                "empty_range",
                "`min_nodes` 4 is more than `max_nodes` 2. Swap them.",
            )
        ],
    ),
    (
        "per_gpu and per-worker amounts",
        [(f"{R}.per_gpu", {"cpu_cores": 12, "memory_bytes": 2**30}), (f"{R}.cpu_cores", 12)],
        [
            (
                f"{R}.per_gpu",
                "both_amounts",
                (
                    "Give either `per_gpu` (for each GPU) or `cpu_cores` and `memory_bytes` (for each worker), "
                    "not both."
                ),
            )
        ],
    ),
    (
        "per_gpu without GPUs",
        [(f"{R}.gpu_requests", GONE), (f"{R}.per_gpu", {"cpu_cores": 12, "memory_bytes": 2**30})],
        [
            (
                f"{R}.per_gpu",
                "per_gpu_without_gpus",
                "`per_gpu` needs `gpu_requests`. Without GPUs give `cpu_cores` and `memory_bytes`.",
            )
        ],
    ),
    (
        "half of the amounts with GPUs",
        [(f"{R}.cpu_cores", 8)],
        [
            (
                f"{R}.memory_bytes",
                "missing",
                (
                    "`memory_bytes` is missing. With GPUs give both `cpu_cores` and `memory_bytes`, or neither for "
                    "the GPUs' share."
                ),
            )
        ],
    ),
    *(
        (
            f"min_gbps with {interconnect}",
            [(f"{R}.network", {"interconnect": interconnect, "min_gbps": 400})],
            [
                (
                    f"{R}.network.min_gbps",
                    "min_gbps_without_rdma",
                    (
                        f"`min_gbps` is the speed of RDMA ports, and `{interconnect}` uses none. Leave it out, or ask "
                        "for `rdma` or `infiniband`."
                    ),
                )
            ],
        )
        for interconnect in ("ethernet", "nvlink")
    ),
    (
        "nvlink without GPUs",
        [(f"{R}.gpu_requests", GONE), (f"{R}.network", {"interconnect": "nvlink"})],
        [
            (
                f"{R}.network.interconnect",
                "nvlink_without_gpus",
                "`nvlink` needs `gpu_requests`: NVLink joins GPUs.",
            )
        ],
    ),
    *(
        (
            f"{spread} apart within one {keep_within}",
            [(f"{R}.topology", {"keep_within": keep_within, "spread": spread})],
            [
                (
                    f"{R}.topology.spread",
                    "spread_contradicts_keep_within",
                    f"{reason}: that is impossible. Leave out `spread` or `keep_within`.",
                )
            ],
        )
        for keep_within, spread, reason in (
            ("rack", "rack", "All workers in one rack and each in another rack"),
            ("fabric", "fabric", "All workers on one fabric and each on another fabric"),
            (
                "nvlink_domain",
                "rack",
                "All workers in one NVLink domain, so in one rack, and each in another rack",
            ),
            (
                "nvlink_domain",
                "fabric",
                "All workers in one NVLink domain, so on one fabric, and each on another fabric",
            ),
        )
    ),
    (
        "one InfiniBand fabric and each on another",
        [
            (f"{R}.machines", 2),
            (f"{R}.network", {"interconnect": "infiniband"}),
            (f"{R}.topology", {"spread": "fabric"}),
        ],
        [
            (
                f"{R}.topology.spread",
                "spread_contradicts_interconnect",
                "`infiniband` puts all workers on one fabric, `spread` each on another. Leave out one of the two.",
            )
        ],
    ),
    (
        "a mode without its list",
        [(f"{R}.node_selection", {"mode": "Pools"})],
        [
            (
                f"{R}.node_selection.pools",
                "missing",
                "`pools` is missing. With mode `Pools` give at least one entry.",
            )
        ],
    ),
    (
        "a list that the mode does not read",
        [(f"{R}.node_selection", {"pools": ["a100"]})],
        [
            (
                f"{R}.node_selection.pools",
                "selection_unused",
                (
                    "`pools` counts with mode `Pools` only, and the mode is `Any`. Set `mode` to `Pools`, or leave "
                    "`pools` out."
                ),
            )
        ],
    ),
    (
        "fewer machines named than needed",
        [
            (f"{R}.machines", 2),
            (
                f"{R}.node_selection",
                {"mode": "Machines", "machines": ["gpu-01", "gpu-02"], "exclude_machines": ["gpu-02"]},
            ),
        ],
        [
            (
                f"{R}.node_selection.machines",
                "too_few_machines",
                "2 machines are needed, and 1 of those named may be used (`gpu-01`). Name more, or ask for fewer.",
            )
        ],
    ),
    (
        "a product's full name",
        [(f"{R}.gpu_requests.models", ["NVIDIA H100", "NVIDIA H100 80GB HBM3"])],
        [
            (
                f"{R}.gpu_requests.models[1]",
                "not_a_short_name",
                (
                    "`NVIDIA H100 80GB HBM3` is more than the product's short name. Write `H100`. For its memory use "
                    "`min_memory_bytes`."
                ),
            )
        ],
    ),
]


@pytest.mark.parametrize(
    ("changes", "expected"), [case[1:] for case in RULES], ids=[case[0] for case in RULES]
)
def test_rule_between_fields(changes, expected):
    assert found(changed(changes)) == expected
