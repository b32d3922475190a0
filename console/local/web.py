"""`python -m console.local.web PORT [DESCRIPTOR]`: the console's server, as `./dev` starts it.

The descriptor is a socket that listens on the port already: it was taken in the moment it was chosen, so that two
clones that start at the same time never choose the same port.
"""

import socket
import sys
from collections.abc import Sequence

import uvicorn

_START_FAILED = 3  # what uvicorn's own command line exits with


def main(argv: Sequence[str]) -> int:
    port, *descriptors = map(int, argv)
    server = uvicorn.Server(
        uvicorn.Config(
            "console.asgi:application",
            host="127.0.0.1",
            port=port,
            access_log=False,
            timeout_graceful_shutdown=2,
        )
    )
    server.run(sockets=[socket.socket(fileno=descriptor) for descriptor in descriptors] or None)
    return 0 if server.started else _START_FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
