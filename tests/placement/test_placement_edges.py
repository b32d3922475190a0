"""Odd input: nothing at all, half-known hardware, more than the cluster has, everything alike, mixed machines."""

import json

import pytest

from placement import (
    GpuFacts,
    GroupRequest,
    Hold,
    Impossible,
    MachineFacts,
    Placement,
    PortFacts,
    Refusal,
    Request,
    Selection,
    build_snapshot,
    place,
    possible_ever,
    words,
)
from tests.placement.asking import (
    GIB,
    gpus,
    headline,
    never,
    placed,
    placed_on,
    plain,
    reasons,
    reference,
    refused,
    refused_on,
    snapshot_of,
    where,
)


def sentence(answer: Refusal | Placement | Impossible) -> str:
    return words.headline(json.loads(json.dumps(answer.as_data())))


class TestNothing:
    @pytest.mark.parametrize(
        "request_", [plain(machines=1), plain(gpus=8, machines=1), plain(gpus=8), reference()]
    )
    def test_a_cluster_without_machines_refuses_everything(self, request_):
        assert sentence(place(build_snapshot([]), request_)) == "This cluster has no machines."
        assert sentence(possible_ever(build_snapshot([]), request_)) == "This cluster has no machines."

    def test_machines_without_gpus_hold_runs_without_gpus(self):
        assert where(placed("cpu-01\ncpu-02", plain(machines=2, cpu_millicores=1000))) == ["cpu-01", "cpu-02"]

    def test_machines_without_gpus_refuse_runs_with_gpus(self):
        assert headline("cpu-01", plain(gpus=1, machines=1)) == (
            "No machine open to this run has any GPUs; this cluster has no GPUs of a known model."
        )
        assert reasons("cpu-01", plain(gpus=1, machines=1)) == {"cpu-01": "No GPUs"}

    def test_too_little_for_a_run_without_gpus(self):
        request = plain(machines=1, cpu_millicores=256_000, memory_bytes=4 * GIB)
        assert headline("cpu-01", request) == (
            "1 machine with 256 cores and 4 GiB of memory is needed; none is free now;"
            " nearest is cpu-01: 128 cores free, 256 needed."
        )

    def test_a_request_without_groups_is_an_error_of_the_caller(self):
        with pytest.raises(ValueError, match="at least one group"):
            Request(())

    def test_two_machines_of_one_name_are_an_error_of_the_caller(self):
        with pytest.raises(ValueError, match="Two machines are named gpu-01"):
            build_snapshot([MachineFacts("gpu-01"), MachineFacts("gpu-01")])


class TestHalfKnown:
    def test_an_unknown_model_matches_no_named_one(self):
        machine = MachineFacts("gpu-01", gpus=(GpuFacts(0), GpuFacts(1)))
        snapshot = build_snapshot([machine])
        assert sentence(place(snapshot, plain(gpus=2, machines=1, models=frozenset({"H100"})))) == (
            "No machine open to this run has H100 GPUs; this cluster has no GPUs of a known model."
        )
        assert placed_on(snapshot, plain(gpus=2, machines=1)).ranks[0].gpus == (0, 1)

    def test_a_model_that_the_cluster_lacks(self):
        assert headline("gpu-01 H100 ........", plain(gpus=8, models=frozenset({"B200"}))) == (
            "No machine open to this run has B200 GPUs; this cluster has H100."
        )

    def test_a_port_of_unknown_speed_counts_only_without_min_gbps(self):
        drawing = """
            gpu-01  H100 ........  ib:ib-a@0
            gpu-02  H100 ........  ib:ib-a@0
        """
        assert where(placed(drawing, reference(min_gbps=None))) == ["gpu-01", "gpu-02"]
        assert (
            reasons(drawing, reference())["gpu-01"]
            == "8 ports on ib-a of unknown speed, 400 needed; 8 of 8 GPUs free"
        )

    def test_a_port_without_a_fabric_is_told(self):
        drawing = "gpu-01  H100 ........  ib:x1"
        assert reasons(drawing, plain(gpus=8, interconnect="infiniband")) == {
            "gpu-01": "1 port, none on a known compute fabric; 8 of 8 GPUs free"
        }

    def test_one_name_for_infiniband_and_roce_ports_still_are_two_fabrics(self):
        drawing = """
            gpu-01  H100 ........  ib:f
            gpu-02  H100 ........  roce:f
        """
        assert (
            refused(drawing, plain(gpus=16, machines=2, interconnect="rdma")).cause.code == "no_fabric_room"
        )

    def test_a_machine_that_never_reported_is_not_ready(self):
        assert reasons("gpu-01 H100 ........ state=", plain(gpus=8)) == {
            "gpu-01": "Not ready; 8 of 8 GPUs free"
        }

    @pytest.mark.parametrize(
        ("state", "text"),
        [
            ("ready,cordoned", "Cordoned"),
            ("ready,draining", "Draining, takes no new work"),
            ("unreachable", "Unreachable"),
            ("ready,unreachable", "Unreachable"),
            ("ready,stale_agent", "Its agent is too old"),
            ("ready,quarantined", "Quarantined until an owner decides"),
            ("ready,contested", "Two agents use its credential, so nothing is started there"),
            ("ready,cordoned,draining", "Draining, takes no new work; cordoned"),
        ],
    )
    def test_every_state_has_its_words(self, state, text):
        drawing = f"gpu-01 H100 ........ state={state}"
        assert reasons(drawing, plain(gpus=8)) == {"gpu-01": f"{text}; 8 of 8 GPUs free"}

    def test_ports_are_told_in_the_order_of_their_numbers(self):
        names = [f"mlx5_{number}:1" for number in range(12)]
        ports = tuple(PortFacts(name, gbps=400, fabric="ib-a") for name in sorted(names))
        snapshot = build_snapshot([MachineFacts("gpu-01", gpus=(GpuFacts(0),), ports=ports)])
        answer = placed_on(snapshot, plain(gpus=1, interconnect="infiniband"))
        assert list(answer.ranks[0].ports) == names


class TestTooMuch:
    def test_more_machines_than_the_cluster_has(self):
        assert headline("gpu-01 H100 ........", plain(gpus=64, machines=8)) == (
            "8 machines with 8 free GPUs are needed; 1 is free now (gpu-01)."
        )

    def test_more_gpus_on_one_machine_than_any_has(self):
        drawing = "gpu-01 H100 ........"
        assert reasons(drawing, plain(gpus=16, machines=1)) == {
            "gpu-01": "Has 8 GPUs, 16 needed; 8 of 8 GPUs free"
        }

    def test_a_slice_that_no_machine_reaches(self):
        assert headline("gpu-01 H100 ........", plain(gpus=32, min_per_machine=16)) == (
            "32 GPUs can't be split evenly with at least 16 on each: the largest machine has 8 GPUs."
        )

    def test_every_failed_rule_is_told_not_only_the_first(self):
        drawing = """
            gpu-01  A100 ##xx  ib:ib-a@200  state=ready,cordoned  cpu=1  mem=1  pool=a100
            gpu-02  H100 ........  ib:ib-a
        """
        request = Request(reference(healthy_only=False).groups, allowed_pools=frozenset({"h100"}))
        assert reasons(drawing, request)["gpu-01"] == (
            "In pool a100, which this workspace may not use; A100; H100 is asked;"
            " 4 ports on ib-a at 200 Gb/s, 400 needed; 1 GiB of memory free, 800 GiB needed;"
            " 1 core free, 96 needed; cordoned"
        )

    def test_faulty_and_held_gpus_are_both_told(self):
        assert reasons("gpu-01 H100 ##xx", plain(gpus=4, machines=1)) == {
            "gpu-01": "2 of 4 GPUs are sound, 4 needed; GPUs 2 and 3 are faulty; 0 of 4 GPUs free, 4 needed; 2 held"
        }

    def test_gpu_memory_too_small(self):
        drawing = "gpu-01 H100 ........ gpumem=80"
        assert reasons(drawing, plain(gpus=8, min_memory_bytes=100 * GIB)) == {
            "gpu-01": "80 GiB on a GPU, 100 GiB needed"
        }


class TestAlike:
    def test_identical_machines_are_taken_by_name(self):
        drawing = "\n".join(f"m{number}  H100 ........" for number in range(6))
        assert where(placed(drawing, plain(gpus=24, machines=3))) == ["m0", "m1", "m2"]

    def test_identical_machines_share_one_row_of_the_explanation(self):
        drawing = "\n".join(f"m{number}  H100 ####...." for number in range(6))
        data = refused(drawing, plain(gpus=8, machines=1)).as_data()
        assert [(row["codes"], row["machines"]) for row in data["rows"]] == [
            (["gpus_busy"], [f"m{number}" for number in range(6)])
        ]

    def test_runs_placed_in_a_row_never_share_a_gpu(self):
        snapshot = snapshot_of("\n".join(f"m{number}  H100 ........" for number in range(3)))
        seen: set[tuple[str, int]] = set()
        for _ in range(12):
            answer = placed_on(snapshot, plain(gpus=2, machines=1))
            taken = {(rank.machine_name, gpu) for rank in answer.ranks for gpu in rank.gpus}
            assert not taken & seen
            seen |= taken
            snapshot = snapshot.take(answer)
        assert len(seen) == 24
        assert refused_on(snapshot, plain(gpus=1, machines=1)).cause.code == "too_few_machines"

    def test_what_ends_becomes_free_again(self):
        snapshot = snapshot_of("m0  H100 ####....  cpu=64  mem=1024")
        freed = snapshot.released([Hold("m0", (0, 1, 2, 3), 64_000, 1024 * GIB)])
        assert placed_on(freed, plain(gpus=8, machines=1)).ranks[0].cpu_millicores == 128_000


class TestMixedMachines:
    MIXED = MachineFacts(
        "mix-01",
        gpus=(
            GpuFacts(0, 10, "H100", 80 * GIB),
            GpuFacts(1, 11, "A100", 40 * GIB),
            GpuFacts(3, 13, "H100", 80 * GIB, held=True),
            GpuFacts(5, 15, "H100", 80 * GIB),
        ),
    )

    def test_only_the_gpus_asked_for_are_given(self):
        answer = placed_on(build_snapshot([self.MIXED]), plain(gpus=2, models=frozenset({"H100"})))
        assert gpus(answer) == {"mix-01": (0, 5)}
        assert answer.ranks[0].gpu_ids == (10, 15)

    def test_only_they_are_counted(self):
        answer = refused_on(
            build_snapshot([self.MIXED]), plain(gpus=3, machines=1, models=frozenset({"H100"}))
        )
        row = answer.as_data()["rows"][0]
        assert words.machine_sentence(row, answer.as_data()["asked"]) == "2 of 3 GPUs free, 3 needed; 1 held"

    def test_memory_is_a_matter_of_the_single_gpu(self):
        answer = placed_on(build_snapshot([self.MIXED]), plain(gpus=2, min_memory_bytes=60 * GIB))
        assert gpus(answer) == {"mix-01": (0, 5)}


class TestThousandsOfDomains:
    """Every machine is a rack, a fabric and an NVLink domain of its own."""

    ALONE = snapshot_of(
        "\n".join(f"m{n:04d}  H100 ........  ib:f{n:04d}x1  rack=r{n:04d}  nvl=d{n:04d}" for n in range(2000))
    )

    @pytest.mark.parametrize(
        ("fields", "where_", "found"),
        [
            (
                {"keep_within": "rack"},
                "in one rack",
                "rack r0000 has 1 (m0000), r0001 has 1 (m0001), the other 1,998 racks",
            ),
            (
                {"interconnect": "infiniband"},
                "on one fabric",
                "fabric f0000 has 1 (m0000), f0001 has 1 (m0001), the other 1,998 fabrics",
            ),
            (
                {"interconnect": "nvlink"},
                "in one NVLink domain",
                "NVLink domain d0000 has 1 (m0000), d0001 has 1 (m0001), the other 1,998 NVLink domains",
            ),
        ],
    )
    def test_none_has_room_for_two(self, fields, where_, found):
        assert sentence(refused_on(self.ALONE, plain(gpus=16, machines=2, **fields))) == (
            f"2 machines with 8 free GPUs {where_} are needed; {found} have at most 1 each."
        )
        assert sentence(never(self.ALONE, plain(gpus=16, machines=2, **fields))).endswith(
            "even when all are free."
        )

    def test_each_has_room_for_one(self):
        request = plain(gpus=8, machines=1, keep_within="rack", interconnect="infiniband")
        assert where(placed_on(self.ALONE, request)) == ["m0000"]

    @pytest.mark.parametrize("level", ["rack", "fabric"])
    def test_spread_is_content_with_them(self, level):
        answer = placed_on(self.ALONE, plain(gpus=64, machines=8, spread=level))
        assert where(answer) == [f"m{number:04d}" for number in range(8)]

    def test_groups_that_each_keep_within_a_rack_are_told_that_none_has_room(self):
        pair = GroupRequest("pair", gpus=16, machines=2, keep_within="rack")
        answer = refused_on(self.ALONE, Request((GroupRequest("one", gpus=8), pair)))
        assert (answer.cause.code, answer.group) == ("no_rack_room", 1)

    def test_only_the_first_domains_are_told_one_by_one(self):
        data = refused_on(self.ALONE, plain(gpus=16, machines=2, keep_within="rack")).as_data()
        assert len(data["domains"]) + data["domains_left_out"] == 2000


class TestUnlabelled:
    """No rack, no domain, no fabric, no pool, no label: what is not known joins nobody and refuses nothing else."""

    BARE = snapshot_of("m0  H100 ........  pool=\nm1  H100 ........  pool=")

    def test_a_gang_without_rules_is_placed_over_ethernet(self):
        answer = placed_on(self.BARE, plain(gpus=16, machines=2))
        assert answer.verdict.code == "ethernet"
        assert (answer.groups[0].rack, answer.groups[0].nvlink_domain, answer.groups[0].fabric) == (
            None,
            None,
            None,
        )

    @pytest.mark.parametrize(
        ("fields", "text"),
        [
            ({"keep_within": "rack"}, "Rack not known"),
            ({"keep_within": "nvlink_domain"}, "In no NVLink domain"),
            ({"keep_within": "fabric"}, "On no fabric that is known"),
            ({"spread": "rack"}, "Rack not known"),
            ({"spread": "fabric"}, "On no fabric that is known"),
            ({"interconnect": "rdma"}, "No RDMA port"),
            ({"selection": Selection(pools=frozenset({"h100"}))}, "In no pool, which the request leaves out"),
            ({"selection": Selection(match_labels={"zone": "a"})}, "Without the label zone=a"),
        ],
    )
    def test_a_rule_about_what_is_not_known_refuses_with_its_reason(self, fields, text):
        row = refused_on(self.BARE, plain(gpus=16, machines=2, **fields)).as_data()["rows"][0]
        asked = refused_on(self.BARE, plain(gpus=16, machines=2, **fields)).as_data()["asked"]
        assert row["machines"] == ["m0", "m1"]
        assert words.machine_sentence(row, asked) == f"{text}; 8 of 8 GPUs free"
