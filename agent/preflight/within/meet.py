"""How members meet, and come to one verdict.

The leader listens on the rendezvous port, the others connect and say who they are. It tells them where to go on (the
store's port, their shares of all processes), gathers what each has measured, judges once, and tells everybody. So all
members give the same answer, and name the same machines.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time

from agent.preflight.within.answers import Json, failed, passed
from agent.preflight.within.measure import free_port, measure_here
from agent.preflight.within.verdict import Results, verdict_of

ENOUGH = 0.5
"""Of what a machine's ports carry, the bus bandwidth that an all-reduce has to reach."""
_LINE_BYTES = 1 << 20
_HELLO_SECONDS = 5.0
_RETRY_SECONDS = 0.05


def meet(job: Json) -> Json:
    return lead(job) if job["rank"] == 0 else join(job)


class Peer:
    """The other end of a connection between the leader and a member: one JSON document a line."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.file = connection.makefile("rwb")

    def say(self, document: Json) -> None:
        try:
            self.file.write(json.dumps(document).encode() + b"\n")
            self.file.flush()
        except OSError:  # it has gone; whoever waits for its answer finds that out
            return

    def hear(self, seconds: float) -> Json | None:
        """None when nothing comes in time, or the other end is gone."""
        self.connection.settimeout(max(0.01, seconds))
        try:
            line = self.file.readline(_LINE_BYTES)
            heard: Json | None = json.loads(line) if line.endswith(b"\n") else None
        except (OSError, ValueError):
            return None
        return heard

    def close(self) -> None:
        end(self.connection)  # wakes a thread that still listens to it
        with contextlib.suppress(OSError):  # what nobody will read can't be flushed
            self.file.close()
        self.connection.close()


def end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the other end was first
        connection.shutdown(socket.SHUT_RDWR)


class Awaited(threading.Thread):
    """What a peer says next, heard while something else goes on; `over` is set when the peer is gone."""

    def __init__(self, peer: Peer, seconds: float, over: threading.Event) -> None:
        super().__init__(daemon=True)
        self._peer, self._seconds, self._over = peer, seconds, over
        self.said: Json | None = None
        self.start()

    def run(self) -> None:
        self.said = self._peer.hear(self._seconds)
        if self.said is None:
            self._over.set()


Peers = dict[int, tuple[Peer, Json]]
"""By rank: a member, and what it said first."""


def lead(job: Json) -> Json:
    due = time.monotonic() + job["join_seconds"]
    peers = gather(job, due)
    absent = [job["machines"][rank] for rank in range(1, len(job["machines"])) if rank not in peers]
    if absent:
        verdict = failed(absent_text(job, absent), absent)
    elif job["measure"]:
        verdict = lead_measure(job, peers)
    else:
        slowest = max([hello["milliseconds"] for _, hello in peers.values()], default=0.0)
        verdict = passed(f"{place_of(job)} reached by all within {slowest:.1f} ms")
    for peer, _ in peers.values():
        peer.say({"verdict": verdict})
        peer.close()
    return verdict


def absent_text(job: Json, absent: list[str]) -> str:
    leader, seconds = job["machines"][0], job["join_seconds"]
    return f"{', '.join(absent)} did not reach the leader {leader} at {place_of(job)} within {seconds:g} s"


def place_of(job: Json) -> str:
    return f"{job['address']}:{job['port']}"


def gather(job: Json, due: float) -> Peers:
    """Returns when all are there, or the time is up."""
    peers: Peers = {}
    waiting = len(job["machines"]) - 1
    if not waiting:
        return peers
    listener = listen(job["port"])
    lock, complete = threading.Lock(), threading.Event()

    def welcome(connection: socket.socket) -> None:
        peer = Peer(connection)
        hello = peer.hear(_HELLO_SECONDS)
        if not hello or hello.get("token") != job["token"]:
            peer.close()
            return
        with lock:
            peers[hello["rank"]] = (peer, hello)
            if len(peers) == waiting:
                complete.set()

    def accept() -> None:
        while not complete.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:  # closed below
                return
            threading.Thread(target=welcome, args=(connection,), daemon=True).start()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    complete.wait(max(0.0, due - time.monotonic()))
    end(listener)
    accepting.join()
    listener.close()
    with lock:
        return dict(peers)


def listen(port: int) -> socket.socket:
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    try:
        listener.bind(("", port))
    except OSError as error:
        raise OSError(f"port {port} can't be had: {error.strerror}") from error
    listener.listen(socket.SOMAXCONN)
    return listener


def join(job: Json) -> Json:
    me = job["machines"][job["rank"]]
    connection, milliseconds, problem = connect(job)
    if connection is None:
        leader = job["machines"][0]
        return failed(f"the leader {leader} can't be reached from {me} at {place_of(job)}: {problem}", [me])
    peer = Peer(connection)
    try:
        return follow(job, peer, milliseconds)
    finally:
        peer.close()


def follow(job: Json, peer: Peer, milliseconds: float) -> Json:
    """What a member does that has reached the leader."""
    hello = {"token": job["token"], "rank": job["rank"], "milliseconds": milliseconds}
    peer.say(dict(hello, processes=job["processes"], gbytes=job["gbytes"]))
    heard = peer.hear(job["seconds"])
    if heard and "go" in heard:
        over = threading.Event()
        awaited = Awaited(peer, job["seconds"], over)
        peer.say(measure_here(job, heard["go"], over))
        awaited.join()
        heard = awaited.said
    if not heard:
        return failed(f"the leader {job['machines'][0]} left the check", [job["machines"][0]])
    verdict: Json = heard["verdict"]
    return verdict


def connect(job: Json) -> tuple[socket.socket | None, float, str]:
    """(connection, milliseconds it took, "") or (None, 0, why); tried again until the leader may be there."""
    due, problem = time.monotonic() + job["join_seconds"], ""
    while time.monotonic() < due:
        begun = time.monotonic()
        try:
            found = socket.create_connection((job["address"], job["port"]), timeout=due - begun)
            return found, (time.monotonic() - begun) * 1000, ""
        except OSError as error:
            problem = error.strerror or str(error)
            time.sleep(_RETRY_SECONDS)
    return None, 0, problem


def lead_measure(job: Json, peers: Peers) -> Json:
    counts = {rank: hello["processes"] for rank, (_, hello) in peers.items()}
    counts[0] = job["processes"]
    shares = [counts[rank] for rank in range(len(job["machines"]))]
    known = [
        gbytes for gbytes in [job["gbytes"], *(hello["gbytes"] for _, hello in peers.values())] if gbytes
    ]
    floor = min(known) * ENOUGH if len(known) == len(shares) and len(shares) > 1 else None
    port = free_port()
    for rank, (peer, _) in peers.items():
        address = peer.connection.getsockname()[0]
        peer.say({"go": {"store": [address, port], "shares": shares, "floor": floor, "rank": rank}})
    here = next((peer.connection.getsockname()[0] for peer, _ in peers.values()), "127.0.0.1")
    over = threading.Event()
    awaited = {rank: Awaited(peer, job["seconds"], over) for rank, (peer, _) in peers.items()}
    go = {"store": [here, port], "shares": shares, "floor": floor}
    results: Results = {0: measure_here(job, go, over)}
    due = time.monotonic() + _HELLO_SECONDS
    for rank, member in awaited.items():
        member.join(max(0.0, due - time.monotonic()))
        if member.said is not None:
            results[rank] = member.said
    return verdict_of(job["machines"], results, shares, floor, job["noun"])
