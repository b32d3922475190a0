"""A console on a real port of loopback that serves this test's database: Django and the plain ASGI streams.

No Celery: what is nudged stays in Redis. Needs `django_db(transaction=True)`, for the server's threads read what the
test wrote.
"""

import socket
import threading
import time
from collections.abc import Iterator

import pytest
import uvicorn

from console.streams.hub import hub
from tests.support.console import PATIENCE_SECONDS


@pytest.fixture
def served(house) -> Iterator[str]:
    """The console's address."""
    hub.closing = False
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config("console.asgi:application", log_level="warning", timeout_graceful_shutdown=2)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        assert time.monotonic() < deadline, "the server takes too long to start"
        time.sleep(0.02)
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join()
    listener.close()
