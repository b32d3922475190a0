"""The lines people and scripts read: the user guide's at its figures, and honest ones elsewhere."""

from types import ModuleType

import pytest


def test_the_guides_lines(recipe: ModuleType) -> None:
    assert (
        recipe.all_reduce_line(1024, 0.0056, 16, "cuda")
        == "all_reduce 1 GiB over 16 GPUs: 5.6 ms, bus bandwidth 360 GB/s"
    )
    assert recipe.throughput_line(46912.3, 16, "cuda") == "throughput: 46,912 images/s on 16 GPUs"


@pytest.mark.parametrize(
    ("mib", "seconds", "world", "device", "line"),
    [
        (64, 0.0745, 2, "cpu", "all_reduce 64 MiB over 2 CPU processes: 74.5 ms, bus bandwidth 0.9 GB/s"),
        (2048, 0.2386, 16, "cuda", "all_reduce 2 GiB over 16 GPUs: 238.6 ms, bus bandwidth 17 GB/s"),
        (1536, 1.9, 2, "cuda", "all_reduce 1536 MiB over 2 GPUs: 1900.0 ms, bus bandwidth 0.8 GB/s"),
        (1, 0.025, 2, "cpu", "all_reduce 1 MiB over 2 CPU processes: 25.0 ms, bus bandwidth 0.042 GB/s"),
        (1024, 0.0012, 72, "cuda", "all_reduce 1 GiB over 72 GPUs: 1.2 ms, bus bandwidth 1765 GB/s"),
    ],
)
def test_all_reduce_line(
    recipe: ModuleType, mib: int, seconds: float, world: int, device: str, line: str
) -> None:
    assert recipe.all_reduce_line(mib, seconds, world, device) == line


def test_one_process_has_no_bandwidth(recipe: ModuleType) -> None:
    assert recipe.all_reduce_line(1024, 0.000021, 1, "cuda") == (
        "all_reduce 1 GiB over 1 GPU: 0.021 ms, bus bandwidth 0 GB/s (one process: nothing crosses a link)"
    )


@pytest.mark.parametrize(
    ("images", "world", "device", "line"),
    [
        (3.21, 2, "cpu", "throughput: 3.2 images/s on 2 CPU processes"),
        (0.0421, 1, "cpu", "throughput: 0.042 images/s on 1 CPU process"),
        (99.94, 2, "cpu", "throughput: 99.9 images/s on 2 CPU processes"),
        (2932.4, 1, "cuda", "throughput: 2,932 images/s on 1 GPU"),
    ],
)
def test_throughput_line(recipe: ModuleType, images: float, world: int, device: str, line: str) -> None:
    assert recipe.throughput_line(images, world, device) == line


@pytest.mark.parametrize(
    ("steps", "reported"),
    [
        (300, [50, 100, 150, 200, 250, 300]),
        (120, [50, 100]),
        (50, [50]),
        (49, [10, 20, 30, 40, 49]),
        (16, [4, 8, 12, 16]),
        (2, [1, 2]),
        (1, [1]),
    ],
)
def test_steps_reported(recipe: ModuleType, steps: int, reported: list[int]) -> None:
    assert [step for step in range(1, steps + 1) if recipe.reports_loss(step, steps)] == reported


@pytest.mark.parametrize(("steps", "left_out"), [(300, 20), (60, 20), (30, 10), (3, 1), (2, 1), (1, 0)])
def test_warm_up_leaves_steps_to_time(recipe: ModuleType, steps: int, left_out: int) -> None:
    assert recipe.warmup_steps(steps) == left_out
