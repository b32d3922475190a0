"""Is the network between the GPUs as fast as it should be, and how fast do they train together?

Started by torchrun on every worker of a run (or bare, as one process), this script times an
all-reduce over all processes, then trains ResNet-50 on synthetic images and reports the images
a second. Global rank 0 prints the results:

    all_reduce 1 GiB over 16 GPUs: 5.6 ms, bus bandwidth 360 GB/s
    step 50/300 loss 6.912
    throughput: 46,912 images/s on 16 GPUs

Options are environment variables: STEPS, BATCH_PER_GPU, IMAGE_SIZE, ALLREDUCE_MIB. The second
part is meant to be swapped for a training of your own. Needs PyTorch and nothing else; it runs
on Python 3.10, which NVIDIA's images of 2024 have.
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
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel

MIB = 2**20
REDUCE_WARMUP, REDUCE_TIMED = 5, 20
STEP_WARMUP = 20
REPORT_EVERY = 50
CLASSES = 1000
SMALLEST_IMAGE = 32  # one pixel after the network's five halvings
STOP_WITHIN_SECONDS = 10  # well inside the 30 s after which torchrun and the agent kill
SIOCGIFADDR = 0x8915  # Linux, netdevice(7): an interface's IPv4 address


COMPILE_MODES = ("off", "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


class UsageError(Exception):
    """Something the person who started the run can put right; the message is one line for them."""


@dataclass(frozen=True)
class Options:
    steps: int
    batch_per_gpu: int  # images a step, for each process
    image_size: int  # pixels, height and width
    allreduce_mib: int  # float32 buffer of the bandwidth test
    compile: str  # one of COMPILE_MODES


# The GPU figures on a CPU would take days and tens of GiB: a first try on a laptop should end.
DEFAULTS = {"cuda": Options(300, 256, 224, 1024, "default"), "cpu": Options(20, 4, 64, 64, "off")}


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
    """Bus bandwidth is what each process's link carries: 2 (n - 1) / n of the buffer, each way."""
    ms = seconds * 1e3
    gbs = mib * MIB * 2 * (world - 1) / world / seconds / 1e9
    line = (
        f"all_reduce {size_name(mib)} over {processes(world, device)}: "
        f"{ms:.{decimals(ms, math.inf)}f} ms, bus bandwidth {gbs:.{decimals(gbs, 10)}f} GB/s"
    )
    return line if world > 1 else line + " (one process: nothing crosses a link)"


def throughput_line(images_per_second: float, world: int, device: str) -> str:
    digits = decimals(images_per_second, 100)
    return f"throughput: {images_per_second:,.{digits}f} images/s on {processes(world, device)}"


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


def build_model(options: Options, place: Place, device: torch.device) -> nn.Module:
    """The network on its device; over several processes it averages their gradients."""
    on_gpu = device.type == "cuda"
    layout = torch.channels_last if on_gpu else torch.contiguous_format
    model: nn.Module = resnet50().to(device, memory_format=layout)  # type: ignore[call-overload]  # torch's types lack it
    if place.world > 1:
        model = DistributedDataParallel(model, [device] if on_gpu else None, gradient_as_bucket_view=True)
    if options.compile == "off":
        return model
    compiled: nn.Module = torch.compile(model, mode=options.compile)  # type: ignore[assignment]  # a module for a module
    return compiled


def train(options: Options, place: Place, device: torch.device, stop: StopRequest, results: Results) -> float:
    """Trains and returns the images/s of all processes; exits after the step in which a rank was asked to."""
    on_gpu = device.type == "cuda"
    torch.backends.cudnn.benchmark = True  # the shapes never change
    torch.manual_seed(place.rank)  # images of its own on each rank; DDP spreads rank 0's weights
    size, batch = options.image_size, options.batch_per_gpu
    images = torch.randn(
        batch, 3, size, size, device=device, dtype=torch.bfloat16 if on_gpu else torch.float32
    )
    images = images.to(memory_format=torch.channels_last if on_gpu else torch.contiguous_format)
    labels = torch.randint(0, CLASSES, (batch,), device=device)
    model = build_model(options, place, device)
    # The rate of ResNet's recipe is made for 256 images a step; fewer need less.
    rate = 0.1 * min(1.0, batch * place.world / 256)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9, fused=on_gpu)
    loss_of = nn.CrossEntropyLoss()
    vote = StopVote(device)
    warmup, started = warmup_steps(options.steps), 0.0
    stop.at_step_end = True
    for step in range(1, options.steps + 1):
        if step == warmup + 1:
            wait_for(device)
            results.moment("warmed_up")
            started = time.perf_counter()
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=on_gpu):
            loss = loss_of(model(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if place.rank == 0 and reports_loss(step, options.steps):
            say(f"step {step}/{options.steps} loss {loss.item():.3f}")
        if signum := vote.cast(stop.signum):
            say(f"stopped by {signal.Signals(signum).name} after step {step}/{options.steps}")
            dist.destroy_process_group()
            sys.exit(128 + signum)
    wait_for(device)
    images_per_second = batch * place.world * (options.steps - warmup) / (time.perf_counter() - started)
    results.found["loss"] = round(loss.item(), 6)
    return images_per_second


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
    seconds = time_all_reduce(options.allreduce_mib, place.world, device)
    results.moment("reduced")
    say(all_reduce_line(options.allreduce_mib, seconds, place.world, device.type))
    images_per_second = train(options, place, device, stop, results)
    say(throughput_line(images_per_second, place.world, device.type))
    results.moment("ended")
    results.found |= {
        "images_per_second": round(images_per_second, 1),
        "processes": place.world,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "torch": torch.__version__,
        "compile": options.compile,
        "batch_per_gpu": options.batch_per_gpu,
        "steps": options.steps,
        "peak_memory_bytes": peak_memory(device),
    }
    say(results.line())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
