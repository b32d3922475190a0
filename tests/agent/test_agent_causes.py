"""Which line of a log is quoted as the likely cause."""

from pathlib import Path

import pytest

from agent.causes import Cause, likely_cause

LAUNCHER = """\
E1202 10:00:00.000 412 torch/distributed/elastic/multiprocessing/api.py:882] failed (exitcode: 1) local_rank: 0
Traceback (most recent call last):
  File "/usr/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
"""


def traceback(last: str, prefix: str = "") -> str:
    lines = (
        "Traceback (most recent call last):",
        '  File "train.py", line 3, in <module>',
        "    step()",
        last,
    )
    return "".join(f"{prefix}{line}\n" for line in lines)


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (traceback("ValueError: batch size must be positive"), "ValueError: batch size must be positive"),
        (traceback("KeyError: 'loss'") + "cleaning up\n", "KeyError: 'loss'"),
        (traceback("AssertionError"), "AssertionError"),
        (
            traceback("RuntimeError: DataLoader worker (pid 412) exited unexpectedly"),
            "RuntimeError: DataLoader worker (pid 412) exited unexpectedly",
        ),
        (traceback("ValueError: first", "[rank1]: ") + LAUNCHER, "ValueError: first"),
        (
            traceback("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.")
            + traceback("ValueError: later"),
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.",
        ),
        (
            "gpu-01:7:9 [0] misc/socket.cc:50 NCCL WARN socketProgress: Connection closed by remote peer\n"
            + traceback(
                "torch.distributed.DistBackendError: NCCL error in: x.cpp:3690, unhandled system error"
            )
            + LAUNCHER,
            "gpu-01:7:9 [0] misc/socket.cc:50 NCCL WARN socketProgress: Connection closed by remote peer",
        ),
        (
            "gpu-01:7:9 [0] NCCL WARN something harmless\n" + traceback("ValueError: mine"),
            "ValueError: mine",
        ),
        (
            traceback(
                "torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 1/2"
            ),
            "torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 1/2",
        ),
        ("bash: line 1: trian.py: command not found\n", "bash: line 1: trian.py: command not found"),
        (
            "bash: line 1:   412 Killed                  python train.py\n",
            "bash: line 1: 412 Killed python train.py",
        ),
        ("\x1b[31mbash: x: No such file or directory\x1b[0m\n", "bash: x: No such file or directory"),
        (LAUNCHER, "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:"),
        ("epoch 1\nepoch 2\n", ""),
        ("", ""),
    ],
)
def test_the_line_that_says_most(tmp_path: Path, log: str, cause: str) -> None:
    path = tmp_path / "log"
    path.write_text(log)
    assert likely_cause(path).line == cause


def test_where_the_line_is_and_how_much_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    last = f"ValueError: {'x' * 1000}"
    path.write_text(traceback("KeyError: 'too far up'") + "epoch\n" * 100_000 + traceback(last))
    found = likely_cause(path)
    assert found.line == last[:300]
    assert found.offset is not None
    assert path.read_bytes()[found.offset :] == f"{last}\n".encode()


def test_a_log_that_cannot_be_read(tmp_path: Path) -> None:
    assert likely_cause(tmp_path / "log") == Cause()


def test_random_bytes_cost_neither_time_nor_an_error(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(bytes(range(256)) * 2000)
    assert likely_cause(tmp_path / "log") == Cause()
