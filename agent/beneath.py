"""Opening a directory beneath another one, so that no symbolic link and no ".." leads out of it."""

import ctypes
import errno
import os
import struct

_OPENAT2 = 437  # the same on every architecture
_RESOLVE_BENEATH, _RESOLVE_NO_MAGICLINKS = 0x08, 0x02
_TRIES = 100
"""A ".." that is followed while something is renamed may have to be followed again (openat2(2), EAGAIN)."""
_OPEN_HOW = struct.Struct("=QQQ")  # flags, mode, resolve
_libc = ctypes.CDLL(None, use_errno=True)


def open_beneath(root: int, path: str) -> int:
    """A descriptor (O_PATH) of the directory at the relative `path` below the directory `root`.

    Links that stay inside are followed. Raises OSError; its errno is EXDEV for what leads out. Needs Linux 5.6.
    """
    how = _OPEN_HOW.pack(
        os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, 0, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS
    )
    number = errno.EAGAIN
    for _ in range(_TRIES):
        found: int = _libc.syscall(_OPENAT2, root, os.fsencode(path or "."), how, len(how))
        if found >= 0:
            return found
        number = ctypes.get_errno()
        if number != errno.EAGAIN:
            break
    raise OSError(number, os.strerror(number), path)
