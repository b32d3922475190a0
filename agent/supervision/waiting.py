"""A supervisor that was started ahead of its worker: it waits until the agent names the worker's directory."""

import _socket
import os
import sys

_STDIN = 0
_PATH_BYTES = 4096
_DESCRIPTOR_BYTES = 4


def worker_received() -> tuple[str, int | None] | None:
    """The worker's directory and the descriptor that holds its port. None: the agent ended without a word."""
    channel = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, _STDIN)
    space = _socket.CMSG_SPACE(_DESCRIPTOR_BYTES)
    data, control, _, _ = channel.recvmsg(_PATH_BYTES, space, _socket.MSG_CMSG_CLOEXEC)
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, channel.detach())
    os.close(null)
    if not data:
        return None
    held = int.from_bytes(control[0][2][:_DESCRIPTOR_BYTES], sys.byteorder) if control else None
    return os.fsdecode(data), held
