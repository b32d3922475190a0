"""Is the network between the GPUs as fast as it should be, and how fast do they train together?

Started by torchrun on every worker of a run (or bare, as one process), this script times an
all-reduce over all processes, then trains ResNet-50 on synthetic images and reports the images
a second. Global rank 0 prints the results:

    all_reduce 1 GiB over 16 GPUs: 5.6 ms, bus bandwidth 360 GB/s
    verdict: 360 of 400 GB/s: InfiniBand is in use
    step 50/300 loss 6.912
    throughput: 46,912 images/s on 16 GPUs
    {"recipe": "train_ddp", "images_per_second": 46912.3, ...}

Options are environment variables: STEPS, BATCH_PER_GPU, IMAGE_SIZE, ALLREDUCE_MIB, COMPILE,
LINK_GB_PER_SECOND, CHECKPOINT_DIR, CHECKPOINT_SECONDS. The second part is meant to be swapped for
a training of your own. Needs PyTorch and nothing else; it runs on Python 3.10, which NVIDIA's
images of 2024 have.
"""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel

MIB = 2**20
REDUCE_WARMUP, REDUCE_TIMED = 5, 20
SMALLER_MIB = (1, 16, 128)
GOOD_SHARE = 0.6  # of what a link should carry: a ring's overhead is well within the rest
TCP_MOST_GBS = 12.5  # 100 Gb/s: sockets rarely give more
SYSFS = Path("/sys/class/infiniband")
STEP_WARMUP = 20
REPORT_EVERY = 50
CLASSES = 1000
SMALLEST_IMAGE = 32  # one pixel after the network's five halvings
STOP_WITHIN_SECONDS = 10  # well inside the 30 s after which torchrun and the agent kill
SIOCGIFADDR = 0x8915  # Linux, netdevice(7): an interface's IPv4 address


COMPILE_MODES = ("auto", "off", "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


class UsageError(Exception):
    """Something the person who started the run can put right; the message is one line for them."""


@dataclass(frozen=True)
class Options:
    steps: int
    batch_per_gpu: int  # images a step, for each process
    image_size: int  # pixels, height and width
    allreduce_mib: int  # float32 buffer of the bandwidth test
    compile: str  # one of COMPILE_MODES
    link_gb_per_second: int = 0  # what a machine's link should carry; 0: found out here
    checkpoint_dir: str = ""  # empty: nothing is kept
    checkpoint_seconds: int = 300  # between two checkpoints


# The GPU figures on a CPU would take days and tens of GiB: a first try on a laptop should end.
DEFAULTS = {"cuda": Options(300, 256, 224, 1024, "auto"), "cpu": Options(20, 4, 64, 64, "off")}


def read_number(env: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    text = env.get(name, "").strip()
    if not text:
        return default
    sane = text.isascii() and text.isdecimal() and len(text) <= len(str(high))
    if not (sane and low <= int(text) <= high):
        raise UsageError(f"{name} must be a whole number from {low} to {high}, not {text!r}")
    return int(text)


def read_choice(env: Mapping[str, str], name: str, default: str, choices: Sequence[str]) -> str:
    text = env.get(name, "").strip() or default
    if text not in choices:
        raise UsageError(f"{name} must be one of {', '.join(choices)}, not {text!r}")
    return text


def read_options(env: Mapping[str, str], default: Options) -> Options:
    options = Options(
        steps=read_number(env, "STEPS", default.steps, 1, 10**9),
        batch_per_gpu=read_number(env, "BATCH_PER_GPU", default.batch_per_gpu, 1, 10**6),
        image_size=read_number(env, "IMAGE_SIZE", default.image_size, SMALLEST_IMAGE, 4096),
        allreduce_mib=read_number(env, "ALLREDUCE_MIB", default.allreduce_mib, 1, 65536),
        compile=read_choice(env, "COMPILE", default.compile, COMPILE_MODES),
        link_gb_per_second=read_number(env, "LINK_GB_PER_SECOND", default.link_gb_per_second, 1, 10**5),
        checkpoint_dir=env.get("CHECKPOINT_DIR", "").strip(),
        checkpoint_seconds=read_number(env, "CHECKPOINT_SECONDS", default.checkpoint_seconds, 0, 10**6),
    )
    if options.batch_per_gpu == 1 and options.image_size == SMALLEST_IMAGE:
        raise UsageError("BATCH_PER_GPU=1 with IMAGE_SIZE=32 is too little for batch norm: raise one of them")
    return options


@dataclass(frozen=True)
class Place:
    rank: int  # over all processes of the run
    world: int  # processes of the run
    local_rank: int  # on this worker; the index of the process's GPU
    local_world: int  # processes of this worker


def find_place(env: MutableMapping[str, str]) -> Place:
    """Where this process stands; completes `env` with what init_process_group reads.

    torchrun sets everything. Without it RANK and WORLD_SIZE count the run's workers, which is
    right for workers of one GPU each. With no variables at all this is a run of one process.
    """
    if "LOCAL_RANK" not in env:
        if read_number(env, "ASTRAEUS_GPU_COUNT", 1, 0, 4096) > 1:
            raise UsageError("ASTRAEUS_GPU_COUNT is above 1 and one process uses one GPU: use torchrun")
        env["LOCAL_RANK"] = "0"
        if "WORLD_SIZE" not in env:
            env.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        if not env.get(name):
            raise UsageError(f"{name} is not set though others of its kind are: use torchrun")
    world = read_number(env, "WORLD_SIZE", 1, 1, 10**6)
    rank = read_number(env, "RANK", 0, 0, world - 1)
    local_rank = read_number(env, "LOCAL_RANK", 0, 0, world - 1)
    return Place(rank, world, local_rank, read_number(env, "LOCAL_WORLD_SIZE", local_rank + 1, 1, world))


def pick_device(place: Place) -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    seen = torch.cuda.device_count()
    if place.local_world > seen:
        raise UsageError(f"--nproc-per-node is {place.local_world} but only {seen} GPUs are visible here")
    return torch.device("cuda", place.local_rank)


def route_interface(leader: str) -> str | None:
    """The interface that leads to `leader` (its own one on the leader itself), or None if unclear.

    Gloo otherwise listens where the machine's own name resolves to, which on many machines is a
    loopback address that no other machine reaches.
    """
    if sys.platform != "linux":
        return None
    import fcntl  # not on every system

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((leader, 9))  # UDP: asks for the route, sends nothing
        except OSError:
            return None
        ours = socket.inet_aton(probe.getsockname()[0])
        for _, name in socket.if_nameindex():
            request = struct.pack("16s24x", name.encode())
            try:
                answer = fcntl.ioctl(probe, SIOCGIFADDR, request)
            except OSError:
                continue  # an interface without an IPv4 address
            if answer[20:24] == ours:
                return name
    return None


def join(place: Place, device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", rank=place.rank, world_size=place.world, device_id=device)
        return
    if interface := route_interface(os.environ["MASTER_ADDR"]):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    dist.init_process_group("gloo", rank=place.rank, world_size=place.world)


@dataclass
class Results:
    """What the run has found out, for the line that programs read."""

    found: dict[str, Any] = field(default_factory=dict)
    at: dict[str, float] = field(default_factory=dict)  # seconds since 1970

    def moment(self, name: str) -> None:
        self.at[name] = round(time.time(), 3)

    def line(self) -> str:
        return json.dumps({"recipe": "train_ddp", **self.found, "at": self.at})


def peak_memory(device: torch.device) -> int:
    """Bytes that this process held at most: of the GPU's memory, or of the machine's."""
    if device.type == "cuda":
        return torch.cuda.max_memory_reserved(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class StopRequest:
    """Hears SIGTERM and SIGINT, also while the main thread waits in a collective for other ranks.

    Python's own handlers would run only afterwards; a thread reads the signal from the wake-up
    pipe at once. Before training there is nothing to finish and the process leaves. With
    `at_step_end` the training loop leaves, and this thread only if a step does not end.
    """

    def __init__(self) -> None:
        self.signum = 0
        self.at_step_end = False
        self.leaving = False
        self._pipe, wakeup = os.pipe()
        os.set_blocking(wakeup, False)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, lambda _signum, _frame: None)
        threading.Thread(target=self._listen, name="stop-request", daemon=True).start()

    def _listen(self) -> None:
        self.signum = os.read(self._pipe, 1)[0]
        when = "before training"
        if self.at_step_end:
            time.sleep(STOP_WITHIN_SECONDS)
            if self.leaving:  # a checkpoint may take longer than that
                return
            when = f"in the middle of a step that did not end within {STOP_WITHIN_SECONDS} s"
        say(f"stopped by {signal.Signals(self.signum).name} {when}")
        os._exit(128 + self.signum)


class StopVote:
    """Lets all ranks leave after the same step: one that left alone would leave the others waiting.

    A vote's result is read one vote later, so that the GPU always has a step queued.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        on_gpu = device.type == "cuda"
        self._copied = torch.cuda.Event() if on_gpu else None  # type: ignore[no-untyped-call]
        self._last: Tensor | None = None

    def cast(self, signum: int) -> int:
        """Votes `signum` (0: go on); returns the highest of the vote before, the same on every rank."""
        result = 0
        ballot = torch.full((1,), signum, dtype=torch.int32, device=self._device)
        dist.all_reduce(ballot, op=dist.ReduceOp.MAX)
        if self._last is not None:
            if self._copied is not None:
                self._copied.synchronize()
            result = int(self._last.item())
        self._last = ballot.to("cpu", non_blocking=True)
        if self._copied is not None:
            self._copied.record()
        return result


def say(line: str) -> None:
    """Prints from global rank 0 only, at once: the log is followed while the run runs."""
    if os.environ.get("RANK", "0") == "0":
        print(line, flush=True)


def decimals(value: float, whole_from: float) -> int:
    """How many decimals leave `value` two digits that mean something: 360, 5.6, 0.042."""
    if value >= whole_from or value <= 0:
        return 0
    return 1 if value >= 1 / 10 else 1 - math.floor(math.log10(value))


def processes(world: int, device: str) -> str:
    if device == "cuda":
        return "1 GPU" if world == 1 else f"{world} GPUs"
    return "1 CPU process" if world == 1 else f"{world} CPU processes"


def size_name(mib: int) -> str:
    return f"{mib // 1024} GiB" if mib % 1024 == 0 else f"{mib} MiB"


def all_reduce_line(mib: int, seconds: float, world: int, device: str) -> str:
    ms, gbs = seconds * 1e3, bus_bandwidth(mib, seconds, world)
    line = (
        f"all_reduce {size_name(mib)} over {processes(world, device)}: "
        f"{ms:.{decimals(ms, math.inf)}f} ms, bus bandwidth {gbs:.{decimals(gbs, 10)}f} GB/s"
    )
    return line if world > 1 else line + " (one process: nothing crosses a link)"


def throughput_line(images_per_second: float, world: int, device: str) -> str:
    digits = decimals(images_per_second, 100)
    return f"throughput: {images_per_second:,.{digits}f} images/s on {processes(world, device)}"


def metric_line(step: int, **values: float) -> str:
    """What Astraeus draws on the run's page."""
    pairs = " ".join(f"{name}={value:.6g}" for name, value in values.items())
    return f"astraeus-metric {pairs} step={step}"


def reports_loss(step: int, steps: int) -> bool:
    """Every 50th step; a run shorter than that reports about five times, and at its end."""
    if steps >= REPORT_EVERY:
        return step % REPORT_EVERY == 0
    return step % math.ceil(steps / 5) == 0 or step == steps


# --- 1. All-reduce bandwidth --------------------------------------------------------------------


def wait_for(device: torch.device) -> None:
    """GPU work is only queued by the calls that ask for it: a clock is right after this alone."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@dataclass(frozen=True)
class Link:
    """What carries the bytes between the processes, and how much it should carry; None: not known."""

    name: str
    gb_per_second: float | None


# GB/s each way between the GPUs of one machine, by what the vendor calls them.
NVLINK = (("B300", 900.0), ("B200", 900.0), ("H200", 450.0), ("H100 80GB HBM3", 450.0), ("A100-SXM", 300.0))


def find_link(options: Options, place: Place, gpu: str, env: Mapping[str, str], sysfs: Path = SYSFS) -> Link:
    """`gpu` is the GPU's product name, empty on CPUs. LINK_GB_PER_SECOND wins over what is found."""
    told = options.link_gb_per_second or None
    if place.local_world == place.world:
        known = next((speed for name, speed in NVLINK if name in gpu), None)
        return Link("NVLink" if known else "this machine's memory", told or known)
    if not gpu or env.get("NCCL_IB_DISABLE") == "1":
        return Link("TCP", told)
    ports = list(rdma_ports(env.get("NCCL_IB_HCA", ""), sysfs))
    names = {name for name, _ in ports}
    name = names.pop() if len(names) == 1 else "RDMA"
    fastest = sorted((speed for _, speed in ports), reverse=True)[: place.local_world]  # a GPU drives one
    return Link(name, told or sum(fastest) or None)


def rdma_ports(hcas: str, sysfs: Path) -> Iterator[tuple[str, float]]:
    """Name and GB/s of each port that NCCL_IB_HCA ("=mlx5_0:1,=mlx5_1:1") names, as the kernel tells them."""
    for hca in filter(None, hcas.split(",")):
        device, _, port = hca.lstrip("=").partition(":")
        here = sysfs / device / "ports" / (port or "1")
        try:
            layer = (here / "link_layer").read_text().strip()
            gbps = float((here / "rate").read_text().split()[0])
        except (OSError, ValueError, IndexError):
            continue
        yield ("InfiniBand" if layer == "InfiniBand" else "RoCE"), gbps / 8


def verdict(gbs: float, link: Link) -> str:
    """Whether that is what the link should give, in words."""
    speed = f"{gbs:.{decimals(gbs, 10)}f}"
    if link.name == "TCP":
        return f"{speed} GB/s: this is TCP"
    if link.gb_per_second is None:
        return f"{speed} GB/s: what {link.name} should give is not known here; LINK_GB_PER_SECOND tells it"
    share = gbs / link.gb_per_second
    of = f"{speed} of {link.gb_per_second:.0f} GB/s"
    if share >= GOOD_SHARE:
        return f"{of}: {link.name} is in use"
    if gbs < TCP_MOST_GBS and link.name in ("InfiniBand", "RoCE", "RDMA"):
        return f"{speed} GB/s: this is TCP, though {link.name} is here: look for NET/Socket in NCCL's lines"
    return f"{of}: {link.name} gives less than it should"


def bus_bandwidth(mib: int, seconds: float, world: int) -> float:
    """GB/s that each process's link carries: 2 (n - 1) / n of the buffer, each way."""
    return mib * MIB * 2 * (world - 1) / world / seconds / 1e9


def measure_all_reduce(options: Options, place: Place, device: torch.device, results: Results) -> None:
    """Small buffers are told in the result line alone: they show the latency, the largest shows the link."""
    sizes = [*(mib for mib in SMALLER_MIB if mib < options.allreduce_mib), options.allreduce_mib]
    seconds = [time_all_reduce(mib, place.world, device) for mib in sizes]
    results.found["bandwidth"] = [
        {
            "mib": mib,
            "ms": round(took * 1e3, 4),
            "bus_gb_per_second": round(bus_bandwidth(mib, took, place.world), 3),
        }
        for mib, took in zip(sizes, seconds, strict=True)
    ]
    say(all_reduce_line(sizes[-1], seconds[-1], place.world, device.type))
    if place.world > 1:
        gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
        results.found["verdict"] = verdict(
            bus_bandwidth(sizes[-1], seconds[-1], place.world), find_link(options, place, gpu, os.environ)
        )
        say(f"verdict: {results.found['verdict']}")


def time_all_reduce(mib: int, world: int, device: torch.device) -> float:
    """Seconds that one all-reduce of `mib` MiB of float32 takes, the mean of 20 after 5 to warm up."""
    buffer = torch.ones(mib * MIB // 4, device=device)
    dist.all_reduce(buffer)
    if not bool((buffer == world).all()):
        raise RuntimeError(f"all_reduce of ones over {world} processes did not give {world} everywhere")
    buffer.zero_()  # sums of sums would overflow
    for _ in range(REDUCE_WARMUP - 1):
        dist.all_reduce(buffer)
    wait_for(device)
    started = time.perf_counter()
    for _ in range(REDUCE_TIMED):
        dist.all_reduce(buffer)
    wait_for(device)
    return (time.perf_counter() - started) / REDUCE_TIMED


# --- 2. ResNet-50 (put your own training here) --------------------------------------------------


def conv_norm(inputs: int, outputs: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return [conv, nn.BatchNorm2d(outputs)]


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions beside a shortcut; the 3x3 strides, as in version 1.5 of the network."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.body = nn.Sequential(
            *conv_norm(inputs, width, 1),
            nn.ReLU(inplace=True),
            *conv_norm(width, width, 3, stride),
            nn.ReLU(inplace=True),
            *conv_norm(width, outputs, 1),
        )
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else nn.Sequential(*conv_norm(inputs, outputs, 1, stride))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.relu(self.body(x) + self.shortcut(x))
        return out


def resnet50() -> nn.Sequential:
    """ResNet-50 (He et al. 2015), 25,557,032 parameters: images (n, 3, h, w) to logits (n, 1000)."""
    stages: list[nn.Module] = []
    inputs = 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            stages.append(Bottleneck(inputs, width, stride if block == 0 else 1))
            inputs = 4 * width
    return nn.Sequential(
        *conv_norm(3, 64, 7, 2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, padding=1),
        *stages,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(inputs, CLASSES),
    )


def warmup_steps(steps: int) -> int:
    """Steps that the throughput leaves out: 20, at most a third of a short run, at least the first of two."""
    return min(STEP_WARMUP, max(steps // 3, 1 if steps > 1 else 0))


class Checkpoints:
    """CHECKPOINT_DIR: one file for each attempt of the run, written by global rank 0 alone.

    A worker of an earlier attempt that still lingers somewhere writes its own file and never a later
    attempt's. A file is there whole or not at all.
    """

    def __init__(self, options: Options, env: Mapping[str, str]) -> None:
        self._directory = Path(options.checkpoint_dir) if options.checkpoint_dir else None
        self._attempt = read_number(env, "ASTRAEUS_ATTEMPT", 1, 1, 10**9)
        self._seconds = options.checkpoint_seconds
        self._saved_at, self._saved_step = time.monotonic(), -1

    def newest(self) -> Path | None:
        """That of the highest attempt."""
        return max(self._files(), key=self._number, default=None)

    def _files(self) -> list[Path]:
        return list(self._directory.glob("checkpoint-*.pt")) if self._directory else []

    @staticmethod
    def _number(file: Path) -> int:
        number = file.stem.removeprefix("checkpoint-")
        return int(number) if number.isdecimal() else -1

    def due(self) -> bool:
        return self._directory is not None and time.monotonic() - self._saved_at >= self._seconds

    def save(self, state: dict[str, Any]) -> None:
        """Nothing without a directory, or once a later attempt has written there."""
        if self._directory is None or state["step"] == self._saved_step:
            return
        newest = self.newest()
        if newest is not None and self._number(newest) > self._attempt:
            self._saved_at = time.monotonic()  # is said again when the next one is due, not after each step
            say(f"checkpoint not written: {newest} is a later attempt's than {self._attempt}")
            return
        self._directory.mkdir(parents=True, exist_ok=True)
        file = self._directory / f"checkpoint-{self._attempt}.pt"
        written = self._directory / f".{file.name}.{os.getpid()}"
        with written.open("wb") as out:
            torch.save(state, out)
            out.flush()
            os.fsync(out.fileno())
        written.replace(file)
        for earlier in self._files():
            if self._number(earlier) < self._attempt:
                earlier.unlink(missing_ok=True)
        self._saved_at, self._saved_step = time.monotonic(), state["step"]
        say(f"checkpoint: step {state['step']} in {file}")


@dataclass
class Training:
    """All that a checkpoint has to hold."""

    network: nn.Module
    optimizer: torch.optim.Optimizer
    step: int = 0  # the last one done

    def state(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }

    def resume(self, file: Path, device: torch.device) -> None:
        state = torch.load(file, map_location=device, weights_only=True)
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = state["step"]
        say(f"resumed after step {self.step} from {file}")


def parallel(network: nn.Module, options: Options, place: Place, device: torch.device) -> nn.Module:
    """`network` as it is trained: compiled, and over several processes with its gradients averaged."""
    model = network
    if place.world > 1:
        ids = [device] if device.type == "cuda" else None
        model = DistributedDataParallel(network, ids, gradient_as_bucket_view=True)
    if options.compile == "off":
        return model
    compiled: nn.Module = torch.compile(model, mode=compile_mode(options, place))  # type: ignore[assignment]  # a module for a module
    return compiled


def compile_mode(options: Options, place: Place) -> str:
    """CUDA graphs make one GPU 1 % faster; hooks that average gradients between several are not made for them."""
    if options.compile != "auto":
        return options.compile
    return "reduce-overhead" if place.world == 1 else "default"


def make_training(options: Options, place: Place, device: torch.device) -> Training:
    on_gpu = device.type == "cuda"
    layout = torch.channels_last if on_gpu else torch.contiguous_format
    network = resnet50().to(device, memory_format=layout)  # type: ignore[call-overload]  # torch's types lack it
    # The rate of ResNet's recipe is made for 256 images a step; fewer need less.
    rate = 0.1 * min(1.0, options.batch_per_gpu * place.world / 256)
    optimizer = torch.optim.SGD(network.parameters(), lr=rate, momentum=0.9, fused=on_gpu)
    return Training(network, optimizer)


def make_images(options: Options, device: torch.device) -> tuple[Tensor, Tensor]:
    """A batch made where it is used, in the type and layout that the network works in."""
    on_gpu = device.type == "cuda"
    shape = (options.batch_per_gpu, 3, options.image_size, options.image_size)
    images = torch.randn(shape, device=device, dtype=torch.bfloat16 if on_gpu else torch.float32)
    labels = torch.randint(0, CLASSES, (options.batch_per_gpu,), device=device)
    return images.to(memory_format=torch.channels_last if on_gpu else torch.contiguous_format), labels


class Pace:
    """Images a second: of the whole run without its warm-up, and since the last report."""

    def __init__(self, images_a_step: int, device: torch.device) -> None:
        self._images, self._device = images_a_step, device
        self._begun = self._last = (0, 0.0)

    def begin(self, step: int) -> None:
        wait_for(self._device)
        self._begun = self._last = (step, time.perf_counter())

    def overall(self, step: int) -> float:
        wait_for(self._device)
        return self._since(self._begun, step)

    def lately(self, step: int) -> float:
        pace = self._since(self._last, step)
        self._last = (step, time.perf_counter())
        return pace

    def _since(self, mark: tuple[int, float], step: int) -> float:
        return self._images * (step - mark[0]) / (time.perf_counter() - mark[1])


def resume(training: Training, checkpoints: Checkpoints, device: torch.device) -> None:
    """Goes on where an earlier attempt was, all ranks from one step; raises UsageError on every rank alike."""
    if file := checkpoints.newest():
        training.resume(file, device)
    steps = torch.tensor([training.step, -training.step], device=device)
    dist.all_reduce(steps, op=dist.ReduceOp.MAX)
    if int(steps[0]) != -int(steps[1]):
        raise UsageError(
            "not all workers see the same checkpoint: CHECKPOINT_DIR must be on a drive they share"
        )


def train(
    options: Options, place: Place, device: torch.device, stop: StopRequest, results: Results
) -> float | None:
    """Trains and returns the images/s of all processes, None when an earlier attempt had done all steps.

    Exits after the step in which a rank was asked to. Raises UsageError on every rank alike.
    """
    torch.backends.cudnn.benchmark = True  # the shapes never change
    torch.manual_seed(place.rank)  # images of its own on each rank; DDP spreads rank 0's weights
    images, labels = make_images(options, device)
    training, checkpoints = make_training(options, place, device), Checkpoints(options, os.environ)
    resume(training, checkpoints, device)
    if training.step >= options.steps:
        say(f"step {training.step} is done already and STEPS is {options.steps}: nothing is left to train")
        return None
    model, loss_of = parallel(training.network, options, place, device), nn.CrossEntropyLoss()
    vote, pace = StopVote(device), Pace(options.batch_per_gpu * place.world, device)
    first = training.step
    warm = first + warmup_steps(options.steps - first)
    pace.begin(first)
    stop.at_step_end = True
    for step in range(first + 1, options.steps + 1):
        if step == warm + 1:
            pace.begin(warm)
            results.moment("warmed_up")
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
            loss = loss_of(model(images), labels)
        training.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        training.optimizer.step()
        training.step = step
        if place.local_rank == 0 and reports_loss(step, options.steps):
            report(step, options.steps, loss.item(), pace.lately(step))
        signum = vote.cast(stop.signum)
        if signum:
            stop.leaving = True
            say(f"stopped by {signal.Signals(signum).name} after step {step}/{options.steps}")
        if place.rank == 0 and (signum or checkpoints.due()):
            checkpoints.save(training.state())
        if signum:
            dist.destroy_process_group()
            sys.exit(128 + signum)
    images_per_second = pace.overall(options.steps)
    results.found["loss"] = loss.item()
    if place.rank == 0:
        checkpoints.save(training.state())
    return images_per_second


def report(step: int, steps: int, loss: float, images_per_second: float) -> None:
    """A line for people from rank 0, and from each worker one for the chart on the run's page."""
    say(f"step {step}/{steps} loss {loss:.3f}")
    print(metric_line(step, loss=loss, images_per_second=images_per_second), flush=True)


@record  # puts an exception's text into torchrun's own report of the failure
def main() -> None:
    stop = StopRequest()
    try:
        place = find_place(os.environ)
        device = pick_device(place)
        options = read_options(os.environ, DEFAULTS[device.type])
    except UsageError as error:
        if os.environ.get("LOCAL_RANK", "0") == "0":  # once a worker, not once a GPU
            print(f"train_ddp: {error}", file=sys.stderr, flush=True)
        sys.exit(2)
    if device.type == "cpu":
        say("no GPU is visible to this process: running on CPUs over gloo")
    results = Results()
    results.moment("joining")
    join(place, device)
    measure_all_reduce(options, place, device, results)
    results.moment("reduced")
    try:
        images_per_second = train(options, place, device, stop, results)
    except UsageError as error:
        say(f"train_ddp: {error}")
        dist.destroy_process_group()
        sys.exit(2)
    if images_per_second is None:
        dist.destroy_process_group()
        return
    say(throughput_line(images_per_second, place.world, device.type))
    results.moment("ended")
    results.found |= {
        "images_per_second": round(images_per_second, 1),
        "processes": place.world,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "torch": torch.__version__,
        "compile": compile_mode(options, place),
        "batch_per_gpu": options.batch_per_gpu,
        "steps": options.steps,
        "peak_memory_bytes": peak_memory(device),
    }
    say(results.line())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
