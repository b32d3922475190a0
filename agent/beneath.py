"""Opening a directory beneath another one, so that no symbolic link and no ".." leads out of it."""

import ctypes
import os
import struct

_OPENAT2 = 437  # the same on every architecture
_RESOLVE_BENEATH, _RESOLVE_NO_MAGICLINKS = 0x08, 0x02
_OPEN_HOW = struct.Struct("=QQQ")  # flags, mode, resolve
_libc = ctypes.CDLL(None, use_errno=True)


def open_beneath(root: int, path: str) -> int:
    """A descriptor (O_PATH) of the directory at the relative `path` below the directory `root`.

    Links that stay inside are followed. Raises OSError; its errno is EXDEV for what leads out. Needs Linux 5.6.
    """
    how = _OPEN_HOW.pack(
        os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, 0, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS
    )
    found: int = _libc.syscall(_OPENAT2, root, os.fsencode(path or "."), how, len(how))
    if found < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return found
