"""The network, the options and a process's place, without starting anything."""

import ast
import socket
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

SCRIPT = Path(__file__).parents[2] / "worker_image" / "train_ddp.py"

GPU = (300, 256, 224, 1024, "auto")


def test_resnet50_is_the_published_network(recipe: ModuleType) -> None:
    network = recipe.resnet50()
    assert sum(parameter.numel() for parameter in network.parameters()) == 25_557_032
    assert network(torch.zeros(2, 3, 64, 64)).shape == (2, 1000)


def test_runs_on_the_python_of_nvidias_image() -> None:
    ast.parse(SCRIPT.read_text(), feature_version=(3, 10))


def test_options_default_to_the_guides_figures(recipe: ModuleType) -> None:
    assert recipe.read_options({}, recipe.DEFAULTS["cuda"]) == recipe.Options(*GPU)
    assert recipe.read_options({"STEPS": " 7 ", "IMAGE_SIZE": ""}, recipe.Options(*GPU)) == recipe.Options(
        7, 256, 224, 1024, "auto"
    )


@pytest.mark.parametrize("name", ["STEPS", "BATCH_PER_GPU", "IMAGE_SIZE", "ALLREDUCE_MIB"])
@pytest.mark.parametrize("value", ["0", "-1", "1.5", "1e3", "1_000", "many", "٣٠٠", "9" * 5000])
def test_a_bad_option_is_named(recipe: ModuleType, name: str, value: str) -> None:
    with pytest.raises(
        recipe.UsageError, match=rf"^{name} must be a whole number from \d+ to \d+, not '{value}'$"
    ):
        recipe.read_options({name: value}, recipe.Options(*GPU))


def test_a_way_to_compile_that_there_is_not(recipe: ModuleType) -> None:
    with pytest.raises(
        recipe.UsageError, match=r"^COMPILE must be one of auto, off, default, .*, not 'fast'$"
    ):
        recipe.read_options({"COMPILE": "fast"}, recipe.Options(*GPU))


def test_batch_norm_needs_two_values(recipe: ModuleType) -> None:
    with pytest.raises(recipe.UsageError, match=r"^BATCH_PER_GPU=1 with IMAGE_SIZE=32 is too little"):
        recipe.read_options({"BATCH_PER_GPU": "1", "IMAGE_SIZE": "32"}, recipe.Options(*GPU))


WORKER = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "10.20.0.11", "MASTER_PORT": "29500"}
TORCHRUN = WORKER | {"RANK": "9", "WORLD_SIZE": "16", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "8"}


@pytest.mark.parametrize(
    ("env", "place"),
    [
        (TORCHRUN, (9, 16, 1, 8)),
        (WORKER | {"ASTRAEUS_GPU_COUNT": "1"}, (1, 2, 0, 1)),  # a worker of one GPU, without torchrun
        ({}, (0, 1, 0, 1)),
    ],
)
def test_place(recipe: ModuleType, env: dict[str, str], place: tuple[int, ...]) -> None:
    assert recipe.find_place(dict(env)) == recipe.Place(*place)


def test_a_bare_process_gets_the_variables_of_a_run_of_one(recipe: ModuleType) -> None:
    env: dict[str, str] = {}
    recipe.find_place(env)
    assert env == {
        "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        (
            WORKER | {"ASTRAEUS_GPU_COUNT": "8"},
            "ASTRAEUS_GPU_COUNT is above 1 and one process uses one GPU: use torchrun",
        ),
        ({"LOCAL_RANK": "0"}, "RANK is not set though others of its kind are: use torchrun"),
        (WORKER | {"MASTER_ADDR": ""}, "MASTER_ADDR is not set though others of its kind are: use torchrun"),
        (WORKER | {"RANK": "2"}, "RANK must be a whole number from 0 to 1, not '2'"),
    ],
)
def test_a_place_that_cannot_be(recipe: ModuleType, env: dict[str, str], sentence: str) -> None:
    with pytest.raises(recipe.UsageError) as caught:
        recipe.find_place(dict(env))
    assert str(caught.value) == sentence


def test_more_processes_than_gpus(recipe: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(recipe.UsageError, match=r"^--nproc-per-node is 8 but only 2 GPUs are visible here$"):
        recipe.pick_device(recipe.Place(0, 8, 0, 8))
    assert recipe.pick_device(recipe.Place(1, 2, 1, 2)) == torch.device("cuda", 1)


def test_gloo_on_loopback_for_a_loopback_leader(recipe: ModuleType) -> None:
    loopback = {name for _, name in socket.if_nameindex() if name.startswith("lo")}
    assert recipe.route_interface("127.0.0.1") in loopback
    assert recipe.route_interface("127.0.0.7") in loopback


def test_gloo_decides_where_there_is_no_route(recipe: ModuleType) -> None:
    assert recipe.route_interface("no-such-machine.invalid") is None


@pytest.fixture
def fabric(tmp_path: Path) -> Path:
    """/sys/class/infiniband of a machine: two InfiniBand ports and one of RoCE."""
    for device, layer, rate in (
        ("mlx5_0", "InfiniBand", "400 Gb/sec (4X NDR)"),
        ("mlx5_1", "InfiniBand", "400 Gb/sec (4X NDR)"),
        ("mlx5_2", "Ethernet", "100 Gb/sec (4X EDR)"),
    ):
        port = tmp_path / device / "ports" / "1"
        port.mkdir(parents=True)
        (port / "link_layer").write_text(f"{layer}\n")
        (port / "rate").write_text(f"{rate}\n")
    return tmp_path


@pytest.mark.parametrize(
    ("processes", "gpu", "env", "link"),
    [
        ((16, 8), "NVIDIA H100 80GB HBM3", {"NCCL_IB_HCA": "=mlx5_0:1,=mlx5_1:1"}, ("InfiniBand", 100.0)),
        ((2, 1), "NVIDIA H100 80GB HBM3", {"NCCL_IB_HCA": "=mlx5_0:1,=mlx5_1:1"}, ("InfiniBand", 50.0)),
        ((16, 8), "NVIDIA H100 80GB HBM3", {"NCCL_IB_HCA": "=mlx5_2:1"}, ("RoCE", 12.5)),
        ((16, 8), "NVIDIA H100 80GB HBM3", {"NCCL_IB_HCA": "=mlx5_9:1"}, ("RDMA", None)),
        ((16, 8), "NVIDIA H100 80GB HBM3", {"NCCL_IB_DISABLE": "1"}, ("TCP", None)),
        ((8, 8), "NVIDIA H200", {}, ("NVLink", 450.0)),
        ((4, 4), "NVIDIA L4", {}, ("this machine's memory", None)),
        ((2, 1), "", {}, ("TCP", None)),
    ],
)
def test_what_the_link_should_give(
    recipe: ModuleType,
    fabric: Path,
    processes: tuple[int, int],
    gpu: str,
    env: dict[str, str],
    link: tuple[str, float | None],
) -> None:
    place = recipe.Place(0, processes[0], 0, processes[1])
    assert recipe.find_link(recipe.Options(*GPU), place, gpu, env, fabric) == recipe.Link(*link)


@pytest.mark.parametrize(
    ("gbs", "link", "words"),
    [
        (360.2, ("InfiniBand", 400.0), "360 of 400 GB/s: InfiniBand is in use"),
        (9.2, ("TCP", None), "9.2 GB/s: this is TCP"),
        (
            9.2,
            ("InfiniBand", 400.0),
            "9.2 GB/s: this is TCP, though InfiniBand is here: look for NET/Socket in NCCL's lines",
        ),
        (8.0, ("RoCE", 12.5), "8.0 of 12 GB/s: RoCE is in use"),
        (120.0, ("NVLink", 450.0), "120 of 450 GB/s: NVLink gives less than it should"),
        (
            30.0,
            ("RDMA", None),
            "30 GB/s: what RDMA should give is not known here; LINK_GB_PER_SECOND tells it",
        ),
    ],
)
def test_the_verdict(recipe: ModuleType, gbs: float, link: tuple[str, float | None], words: str) -> None:
    assert recipe.verdict(gbs, recipe.Link(*link)) == words


def test_a_later_attempts_checkpoint_is_never_overwritten(
    recipe: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = recipe.Options(*GPU, checkpoint_dir=str(tmp_path / "run"), checkpoint_seconds=60)
    now = [1000.0]
    monkeypatch.setattr(recipe.time, "monotonic", lambda: now[0])

    def attempt(number: int) -> Any:
        return recipe.Checkpoints(options, {"ASTRAEUS_ATTEMPT": str(number)})

    attempt(1).save({"step": 10})
    attempt(2).save({"step": 20})
    assert [file.name for file in (tmp_path / "run").iterdir()] == ["checkpoint-2.pt"]
    lingering = attempt(1)
    now[0] += 60
    assert lingering.due()
    lingering.save({"step": 30})
    assert not lingering.due(), "refused, it does not try again after every step"
    assert [file.name for file in (tmp_path / "run").iterdir()] == ["checkpoint-2.pt"]
    assert torch.load(attempt(10).newest()) == {"step": 20}
    assert capsys.readouterr().out.splitlines()[-1] == (
        f"checkpoint not written: {tmp_path}/run/checkpoint-2.pt is a later attempt's than 1"
    )
