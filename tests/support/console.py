"""The console's ASGI application without a server: requests over httpx, in one event loop a test."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx

from console.streams import agents
from console.streams.hub import hub
from machines.models import Machine
from machines.services import credential_create
from tenancy.services import token_create
from wire import agent_messages as wire
from wire.assignments import FEATURES
from wire.inventory import GpuReport, Inventory

PATIENCE_SECONDS = 20
"""The longest that any test waits for something that should happen at once."""


def send(client: Any, method: str, path: str, document: Any = None) -> Any:
    """The answer of the API to a JSON body; None: to none."""
    data = b"" if document is None else json.dumps(document)
    return client.generic(method, path, data=data, content_type="application/json")


def application(*arguments: Any) -> Awaitable[None]:
    """The console's application; loaded late, for it looks at the directory of static files."""
    from console import asgi

    return asgi.application(*arguments)


def in_console(work: Callable[[httpx.AsyncClient], Awaitable[Any]]) -> Any:
    """Runs `work(client)` beside a console of its own, as after a start of the process."""

    async def main() -> Any:
        async with console() as client:
            return await asyncio.wait_for(work(client), PATIENCE_SECONDS * 3)

    return asyncio.run(main())


@contextlib.asynccontextmanager
async def console() -> AsyncIterator[httpx.AsyncClient]:
    agents._credentials.clear()
    agents._known.clear()
    hub.closing = False
    transport = httpx.ASGITransport(application, raise_app_exceptions=True)
    try:
        async with httpx.AsyncClient(
            transport=transport, base_url="http://127.0.0.1:8000", timeout=PATIENCE_SECONDS
        ) as client:
            yield client
    finally:
        await hub.stop()
        if task := hub._task:
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def until(condition: Callable[[], Any]) -> None:
    """Waits until `condition()` is true; it may not touch the database."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        await asyncio.sleep(0.01)


async def subscribed() -> None:
    """The hub listens to Redis: a message sent from now on is heard."""
    hub.start()
    await until(lambda: hub._epoch > 0 and hub._task is not None)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not dict(await hub.redis.pubsub_numsub("astraeus:wake")).get("astraeus:wake"):
        assert time.monotonic() < deadline, "the hub never subscribed"
        await asyncio.sleep(0.01)


def with_agent(credential: str, work: Callable[["Agent"], Awaitable[Any]]) -> Any:
    """Runs `work(agent)` beside a console."""
    return in_console(lambda client: work(Agent(client, credential)))


class Agent:
    """One agent's side of the channel: what it says is up to the test."""

    def __init__(self, client: httpx.AsyncClient, credential: str, instance: str = "a") -> None:
        self.client, self.credential, self.instance = client, credential, instance
        self.sequence, self.applied = 0, 0

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.credential}"}

    async def sync(
        self,
        *reports: wire.AssignmentReport,
        wait: float = 0,
        digest: str | None = None,
        observed: bool = True,
        **fields: Any,
    ) -> wire.SyncAnswer:
        self.sequence += 1
        response = await self.client.post(
            wire.SYNC_PATH,
            headers=self.headers,
            content=self.message(*reports, wait=wait, digest=digest, observed=observed, **fields),
        )
        assert response.status_code == 200, response.text
        answer = wire.SyncAnswer.model_validate_json(response.content)
        if answer.desired is not None:
            self.applied = max(self.applied, answer.revision)
        return answer

    def message(
        self,
        *reports: wire.AssignmentReport,
        wait: float = 0,
        digest: str | None = None,
        observed: bool = True,
        **fields: Any,
    ) -> str:
        seen = wire.Observed(inventory=inventory(), assignments=reports)
        return wire.SyncRequest.model_validate(
            {
                "protocol": 1,
                "agent_version": "0.1.0",
                "boot_id": "boot-1",
                "instance": self.instance,
                "sequence": self.sequence,
                "sent_at": time.time(),
                "applied_revision": self.applied,
                "wait_seconds": wait,
                "address": "10.20.0.11",
                "runtime": "bubblewrap",
                "simulated": True,
                "digest": digest or str(hash(reports)),
                "observed": seen if observed else None,
                **fields,
            }
        ).model_dump_json()

    async def logs(self, *chunks: tuple[str, int, bytes]) -> httpx.Response:
        """`chunks`: assignment id, offset, bytes."""
        header = wire.LogsHeader(
            chunks=tuple(
                wire.LogChunkHeader(assignment=each, offset=offset, size=len(data), at=time.time())
                for each, offset, data in chunks
            )
        )
        body = header.model_dump_json().encode() + b"\n" + b"".join(data for _, _, data in chunks)
        return await self.client.post(wire.LOGS_PATH, headers=self.headers, content=body)


def inventory() -> Inventory:
    return Inventory(
        cpu_cores=96,
        memory_bytes=1024**4,
        gpus=tuple(
            GpuReport(
                index=index,
                uuid=f"GPU-gpu-01-{index}",
                product="NVIDIA H100 80GB HBM3",
                memory_bytes=80 * 1024**3,
            )
            for index in range(2)
        ),
        labels={"topology.astraeus.io/rack": "r1"},
        features=tuple(FEATURES),
    )


def credential_of(machine: Machine) -> str:
    return credential_create(machine=machine).value


class Stream:
    """A request whose answer comes in pieces: what has come so far, and the client that may go away."""

    def __init__(self, path: str, headers: dict[str, str]) -> None:
        path, _, query = path.partition("?")
        self.scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
            "client": ("127.0.0.1", 50_000),
            "server": ("127.0.0.1", 8000),
        }
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.ended = False
        self._left = asyncio.Event()

    async def _receive(self) -> dict[str, Any]:
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            self.body += message["body"]
            self.ended = self.ended or not message.get("more_body", False)

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator["Stream"]:
        task = asyncio.ensure_future(application(self.scope, self._receive, self._send))
        try:
            yield self
        finally:
            self._left.set()
            await asyncio.wait_for(task, PATIENCE_SECONDS)

    async def shows(self, part: bytes) -> None:
        await until(lambda: part in self.body)

    async def over(self) -> bytes:
        await until(lambda: self.ended)
        return self.body


def bearer(house: Any, user: Any = None, **values: Any) -> dict[str, str]:
    """The headers of a viewer's token in the house's workspace."""
    secret = token_create(
        user=user or house.bea,
        organization=house.organization,
        workspace=house.workspace,
        role="viewer",
        name="t",
        **values,
    )
    return {"Authorization": f"Bearer {secret.value}"}
