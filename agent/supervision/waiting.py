"""A supervisor that was started ahead of its worker: it waits until the agent names the worker's directory."""

import _socket
import os
import sys

_STDIN = 0
_MESSAGE_BYTES = 4096 + 64
_DESCRIPTOR_BYTES = 4
_MOST_DESCRIPTORS = 2


def worker_received() -> tuple[str, dict[str, int]] | None:
    """The worker's directory and the descriptors that come with it, by name. None: the agent ended without a word.

    The message is the names, each with a comma, a NUL and the directory.
    """
    channel = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, _STDIN)
    space = _socket.CMSG_SPACE(_DESCRIPTOR_BYTES * _MOST_DESCRIPTORS)
    data, control, _, _ = channel.recvmsg(_MESSAGE_BYTES, space, _socket.MSG_CMSG_CLOEXEC)
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, channel.detach())
    os.close(null)
    if not data:
        return None
    names, _, directory = data.partition(b"\0")
    numbers = control[0][2] if control else b""
    pieces = [numbers[at : at + _DESCRIPTOR_BYTES] for at in range(0, len(numbers), _DESCRIPTOR_BYTES)]
    received = [int.from_bytes(piece, sys.byteorder) for piece in pieces]
    return os.fsdecode(directory), dict(zip(names.decode().split(",")[:-1], received, strict=True))
