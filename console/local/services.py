"""PostgreSQL and Redis for a local set-up: started here, or the ones that DATABASE_URL and REDIS_URL name."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

from console.local import interruption
from console.local.instance import Instance
from console.local.postgres import Postgres
from console.local.processes import Process
from console.local.redis_server import RedisServer


@dataclass(frozen=True)
class Services:
    """Where they are. `processes` are the ones that were started here."""

    database_url: str
    redis_url: str
    processes: tuple[Process, ...] = ()

    @property
    def env(self) -> dict[str, str]:
        return {"DATABASE_URL": self.database_url, "REDIS_URL": self.redis_url}


@contextlib.contextmanager
def local_services(instance: Instance, *, durable: bool) -> Iterator[Services]:
    """Both services, answering; what was started here is stopped at the end.

    `durable` False is for data that tests make: no fsync, and data that no longer start are thrown away.
    """
    with contextlib.ExitStack() as stack:
        database_url, database = _database(instance, stack, durable=durable)
        redis_url, broker = _broker(instance, stack)
        started = [server.process for server in (database, broker) if server and server.process]
        yield Services(database_url, redis_url, tuple(started))


def _end(server: Postgres | RedisServer) -> None:
    interruption.begin_end()  # stopping must run through, whatever brought us here
    server.stop()


def _database(
    instance: Instance, stack: contextlib.ExitStack, *, durable: bool
) -> tuple[str, Postgres | None]:
    if url := os.environ.get("DATABASE_URL"):
        return url, None
    server = Postgres(instance, durable=durable)
    stack.callback(_end, server)
    server.start()
    return server.url(), server


def _broker(instance: Instance, stack: contextlib.ExitStack) -> tuple[str, RedisServer | None]:
    if url := os.environ.get("REDIS_URL"):
        return url, None
    server = RedisServer(instance)
    stack.callback(_end, server)
    server.start()
    return server.url, server
