"""Every code has its words, and numbers read as on every page."""

import pytest

from placement import Cause, GroupRequest, Request, Rule, Verdict, place, words, words_machine
from placement.phrases import and_list, cores, gib, gpu_names, models, plural, shortened
from tests.placement.asking import placed, plain, refused, snapshot_of

GIB = 1 << 30


def test_every_rule_has_a_heading():
    assert set(words.GROUP_TITLES) == {"", *(rule.code for rule in Rule)}


def test_every_rule_has_exactly_one_sentence():
    tables = [words_machine._FIXED, words_machine._COUNTED, words_machine._COMPARED]
    codes = [code for table in tables for code in table]
    assert sorted(codes) == sorted(rule.code for rule in Rule)


def test_every_verdict_has_words():
    assert list(words.VERDICTS) == [verdict.code for verdict in Verdict]


def test_rules_fit_the_bits_kept_for_them():
    assert max(Rule) < 64


@pytest.mark.parametrize(
    ("cause", "lead"),
    [
        (Cause.NO_FABRIC_ROOM, "No fabric has room: "),
        (Cause.NO_RACK_ROOM, "No rack has room: "),
        (Cause.NO_NVLINK_ROOM, "No NVLink domain has room: "),
        (Cause.TOO_FEW_MACHINES, ""),
    ],
)
def test_the_pages_of_workers_begin_with_what_the_set_lacks(cause, lead):
    data = {**refused("gpu-01 H100 ........", plain(gpus=16, machines=2)).as_data(), "cause": cause.code}
    assert words.worker_reason(data) == lead + words.headline(data)


class TestHeadlines:
    def test_small_machines_are_told_by_what_they_lack_not_by_their_free_gpus(self):
        """Both cores and memory are short on each: a headline of free GPUs alone would contradict the page."""
        drawing = """
            gpu-01  H100 ........  cpu=16  mem=32
            gpu-02  H100 ........  cpu=16  mem=32
        """
        request = plain(gpus=16, machines=2, cpu_millicores_per_gpu=12_000, memory_bytes_per_gpu=100 * GIB)
        assert words.headline(refused(drawing, request).as_data()) == (
            "2 machines with 8 free GPUs, 96 cores and 800 GiB of memory are needed; none is free now; nearest is"
            " gpu-01: 32 GiB of memory free, 800 GiB needed; 16 cores free, 96 needed; 8 of 8 GPUs free."
        )

    def test_other_shapes_are_offered_in_the_sentence(self):
        drawing = """
            gpu-01  H100 ....####
            gpu-02  H100 ....####
        """
        assert words.headline(refused(drawing, plain(gpus=16, min_nodes=2, max_nodes=4)).as_data()) == (
            "4 machines with 4 free GPUs, or 2 with 8, are needed; 2 are free now (gpu-01, gpu-02)."
        )

    def test_of_many_domains_the_best_two_are_named(self):
        drawing = "\n".join(
            f"gpu-{number:02d}  H100 ........  ib:ib-a  rack=r{number // 3}" for number in range(13)
        )
        request = plain(gpus=32, machines=4, keep_within="rack", interconnect="infiniband")
        assert words.worker_reason(refused(drawing, request).as_data()) == (
            "No rack has room: 4 machines with 8 free GPUs in one rack are needed;"
            " rack r0 on ib-a has 3 (gpu-00, gpu-01, gpu-02), r1 on ib-a has 3 (gpu-03, gpu-04, gpu-05),"
            " the other 3 racks have at most 3 each."
        )

    def test_of_many_machines_the_first_two_are_named(self):
        drawing = "\n".join(f"gpu-{number:02d}  H100 ........  ib:ib-a" for number in range(5))
        assert words.headline(
            refused(drawing, plain(gpus=48, machines=6, interconnect="infiniband")).as_data()
        ) == (
            "6 machines with 8 free GPUs on one fabric are needed; fabric ib-a has 5 (gpu-00, gpu-01 and 3 more)."
        )

    def test_one_machine_is_singular(self):
        assert words.headline(
            refused("gpu-01 H100 #", plain(gpus=1, models=frozenset({"H100"}))).as_data()
        ) == (
            "1 machine with 1 free H100 is needed; none is free now;"
            " nearest is gpu-01: 0 of 1 GPU free, 1 needed; 1 held."
        )

    def test_nobody_admitted(self):
        drawing = """
            gpu-01  H100 ........  pool=p
            gpu-02  H100 ........  pool=q
        """
        request = Request((GroupRequest(gpus=8),), allowed_pools=frozenset())
        assert words.headline(refused(drawing, request).as_data()) == (
            "No machine of this cluster may take this run: pool not open to this workspace (2)."
        )

    def test_groups_that_collide(self):
        drawing = """
            a-01  H100 ........
            a-02  H100 ........
            a-03  H100 ........
        """
        request = Request(
            (GroupRequest("one", gpus=16, machines=2), GroupRequest("other", gpus=16, machines=2))
        )
        assert words.headline(refused(drawing, request).as_data()) == (
            "Each group of workers fits alone, but not all together: they need the same machines."
            " For group one, 2 machines with 8 free GPUs are needed; 3 are free now (a-01, a-02, a-03)."
        )

    def test_a_placement_in_words(self):
        drawing = "\n".join(f"gpu-{number:02d}  H100 ........  ib:ib-a  rack=r1" for number in range(1, 9))
        answer = placed(drawing, plain(gpus=64, machines=8))
        assert words.placement_sentence(answer.as_data()) == (
            "gpu-01 to gpu-08, one rack on one InfiniBand fabric"
        )

    def test_why_not_this_machine_is_answered_for_placed_runs_too(self):
        snapshot = snapshot_of("gpu-01 H100 ........\ngpu-02 H100 #.......\ngpu-03 H100 ........")
        group = place(snapshot, plain(gpus=8)).as_data()["groups"][0]
        assert group["chosen"] == ["gpu-01"]
        assert [(row["machines"], row["codes"]) for row in group["rows"]] == [
            (["gpu-03"], []),
            (["gpu-02"], ["gpus_busy"]),
        ]


class TestPhrases:
    @pytest.mark.parametrize(
        ("said", "expected"),
        [
            (plural(1, "machine"), "1 machine"),
            (plural(1200, "machine"), "1,200 machines"),
            (and_list([]), ""),
            (and_list(["a", "b", "c"]), "a, b and c"),
            (shortened(["a", "b", "c"]), "a, b, c"),
            (shortened(["a", "b", "c", "d"]), "a, b and 2 more"),
            (gib(0), "0 GiB"),
            (gib(512 << 20), "512 MiB"),
            (gib(800 * GIB), "800 GiB"),
            (gib(3 * GIB // 2), "1.5 GiB"),
            (cores(1000), "1 core"),
            (cores(500), "0.5 cores"),
            (cores(96_000, unit=False), "96"),
            (models(["H100"], 1), "H100"),
            (models(["A100", "H100"], 2), "A100 or H100 GPUs"),
            (models([], 1), "GPU"),
            (gpu_names([5]), "GPU 5"),
            (gpu_names([5, 7]), "GPUs 5 and 7"),
        ],
    )
    def test_phrases(self, said, expected):
        assert said == expected
