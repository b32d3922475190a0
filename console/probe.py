"""`python -m console.probe`: whether the server in this container answers and reaches its database (exit code 0).

Without Django: it runs every few seconds. It asks as the console's own address would be asked for, since the server
answers to no other name.
"""

import http.client
import os
import sys
from urllib.parse import urlsplit

_PORT = 8000
_SECONDS = 4


def main() -> int:
    host = urlsplit(os.environ.get("ASTRAEUS_PUBLIC_URL", "")).hostname or "127.0.0.1"
    server = http.client.HTTPConnection("127.0.0.1", _PORT, timeout=_SECONDS)
    try:
        server.request("GET", "/readyz", headers={"Host": host})
        return 0 if server.getresponse().status == http.client.OK else 1
    except (OSError, http.client.HTTPException):
        return 1
    finally:
        server.close()


if __name__ == "__main__":
    sys.exit(main())
