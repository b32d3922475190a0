"""One command in the namespaces of a worker's sandbox, with no more rights than the worker, and nothing left of it.

Three processes: this one joins the namespaces; its child, the *keeper*, is inside (a process enters a pid namespace
only by being born there); the keeper's child executes the command. Descendants that lose their parent fall to the
keeper, which ends them all: when the command has ended, when its time is up, or when the lifeline breaks, a pipe
whose other end the agent holds.

The worker may be hostile and is as much root as the keeper is. So nothing is imported after the namespaces are
joined, the keeper gives up its rights before it does anything else, and it is not dumpable: its descriptors and its
executable, which is the machine's own, are out of the worker's reach.
"""

import ctypes
import json
import os
import select
import signal
import sys
import time
from typing import Any, NoReturn

from agent.supervision.processes import process_started
from agent.supervision.records import read

_NAMESPACES = {
    "user": 0x10000000,
    "mnt": 0x00020000,
    "pid": 0x20000000,
    "ipc": 0x08000000,
    "uts": 0x04000000,
    "net": 0x40000000,
}
_DUMPABLE, _BOUNDING_DROP, _SUBREAPER, _NO_NEW_PRIVILEGES, _AMBIENT, _AMBIENT_CLEAR = 4, 24, 36, 38, 47, 4
_CAPABILITY_VERSION = 0x20080522
_MOST_CAPABILITIES = 64
_OUTPUT_BYTES = 8192
_PIPE_BYTES = 1 << 20  # more than a pipe holds
_ENDING_SECONDS = 5.0
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
_libc = ctypes.CDLL(None, use_errno=True)


def main(lifeline: int) -> int:
    """Reads the command from stdin and writes what came of it to stdout, both JSON (agent/inside.py)."""
    asked = json.loads(sys.stdin.buffer.read())
    try:
        capabilities = _join(asked)
    except OSError as error:
        sys.stdout.write(json.dumps({"error": f"the sandbox can't be entered: {error.strerror}"}))
        return 0
    keeper = os.fork()
    if keeper == 0:
        _keep(asked, capabilities, lifeline)
    os.waitpid(keeper, 0)
    return 0


# --- going in


def _join(asked: dict[str, Any]) -> dict[str, int]:
    """Join the namespaces; returns the capabilities of the worker's process 1."""
    pid = asked["pid"]
    worker = os.pidfd_open(pid)
    if process_started(pid) != asked["started"]:
        raise ProcessLookupError(3, "the worker has ended")
    capabilities = _capabilities(pid)
    flags = 0
    for name, flag in _NAMESPACES.items():
        theirs, ours = os.stat(f"/proc/{pid}/ns/{name}"), os.stat(f"/proc/self/ns/{name}")  # noqa: PTH116
        flags |= flag if theirs.st_ino != ours.st_ino else 0
    with open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123 - no pathlib here, see the package
        file.write("500")
    if asked["user"]:
        os.setgroups(asked["user"][2])
    _call("prctl", _DUMPABLE, 0, 0, 0, 0)
    # All at once: joining the user namespace first would lose the right to join the others.
    _call("setns", worker, flags)
    return capabilities


def _capabilities(pid: int) -> dict[str, int]:
    lines = (line.split() for line in read(f"/proc/{pid}/status").decode().splitlines())
    return {words[0][:-1]: int(words[1], 16) for words in lines if words[0].startswith("Cap")}


def _call(name: str, *arguments: int) -> None:
    """A function of the C library. Raises OSError."""
    if getattr(_libc, name)(*map(ctypes.c_ulong, arguments)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _give_up_rights(asked: dict[str, Any], capabilities: dict[str, int]) -> None:
    for number in range(_MOST_CAPABILITIES):
        if not capabilities["CapBnd"] >> number & 1:
            _libc.prctl(_BOUNDING_DROP, number, 0, 0, 0)  # those that this kernel doesn't have fail
    _libc.prctl(_AMBIENT, _AMBIENT_CLEAR, 0, 0, 0)
    if asked["user"]:
        uid, gid, _ = asked["user"]
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    sets = [capabilities[name] for name in ("CapEff", "CapPrm", "CapInh")]
    head = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    data = (ctypes.c_uint32 * 6)(*(value & 0xFFFFFFFF for value in sets), *(value >> 32 for value in sets))
    if _libc.capset(head, data) != 0:
        raise OSError(ctypes.get_errno(), "its capabilities can't be taken")
    _call("prctl", _NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    _call("prctl", _DUMPABLE, 0, 0, 0, 0)  # a change of rights may have set it


# --- inside


def _keep(asked: dict[str, Any], capabilities: dict[str, int], lifeline: int) -> NoReturn:
    """The keeper: never returns."""
    try:
        _give_up_rights(asked, capabilities)
        _call("prctl", _SUBREAPER, 1, 0, 0, 0)
        os.setsid()
        result = _run(asked, lifeline)
    except OSError as error:
        result = {"error": f"the command can't be run: {error.strerror}"}
    try:
        _end_children()
        os.write(1, json.dumps(result).encode())
    finally:
        os._exit(0)


def _run(asked: dict[str, Any], lifeline: int) -> dict[str, Any]:
    """Until the command ends by itself or its time is up."""
    output, theirs = os.pipe()
    os.set_blocking(output, False)
    command = os.fork()
    if command == 0:
        _execute(asked, theirs)
    os.close(theirs)
    ended = os.pidfd_open(command)
    poll = select.poll()
    for descriptor in (output, ended, lifeline):
        poll.register(descriptor, select.POLLIN)
    tail, due = b"", time.monotonic() + asked["seconds"]
    while (left := due - time.monotonic()) > 0:
        ready = dict(poll.poll(left * 1000 + 1))
        if output in ready:
            tail = _read(output, tail, poll)
        if ended in ready:
            code = os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
            return {"code": code, "output": _text(_read(output, tail, None))}
        if lifeline in ready:
            return {"error": "the agent has given it up"}
    return {"timed_out": True, "output": _text(tail)}


def _read(output: int, tail: bytes, poll: Any) -> bytes:
    """`tail` and what is there now, its last bytes. An end-of-file is taken off the `poll`."""
    try:
        data = os.read(output, _PIPE_BYTES)
    except BlockingIOError:
        return tail
    if not data and poll:
        poll.unregister(output)
    return (tail + data)[-_OUTPUT_BYTES:]


def _text(tail: bytes) -> str:
    """Whole lines only, once something is cut off: half of a secret would not be known as one."""
    whole = tail if len(tail) < _OUTPUT_BYTES else tail.partition(b"\n")[2]
    return whole.decode(errors="replace")


def _end_children() -> None:
    """Everything below this process; what is born meanwhile falls to it as well."""
    due = time.monotonic() + _ENDING_SECONDS
    while time.monotonic() < due:
        for pid in _children():
            os.kill(pid, signal.SIGKILL)
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.002)
        except ChildProcessError:
            return


def _children() -> list[int]:
    mine, found = str(os.getpid()).encode(), []
    for name in os.listdir("/proc"):  # noqa: PTH208 - no pathlib here, see the package
        if not name.isdecimal():
            continue
        try:
            parent = read(f"/proc/{name}/stat").rpartition(b")")[2].split()[1]
        except OSError:  # it has ended
            continue
        if parent == mine:
            found.append(int(name))
    return found


def _execute(asked: dict[str, Any], output: int) -> NoReturn:
    """The command's own process: never returns."""
    code = _NOT_EXECUTABLE
    try:
        null = os.open("/dev/null", os.O_RDONLY)
        for number, descriptor in ((0, null), (1, output), (2, output)):
            os.dup2(descriptor, number)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        for signum in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and what is ignored stays so
            signal.signal(signum, signal.SIG_DFL)
        os.chdir(asked["directory"])
        code = _execute_found(asked["command"], asked["environment"])
    except OSError as error:
        os.write(2, f"{asked['command'][0]} can't be executed: {error.strerror}\n".encode())
    finally:
        os._exit(code)


def _execute_found(command: list[str], environment: dict[str, str]) -> int:
    """By name, as a shell finds it. Returns when there is nothing to execute; raises OSError."""
    name = command[0]
    places = [""] if "/" in name else [f"{place or '.'}/" for place in environment.get("PATH", "").split(":")]
    for place in places:
        try:
            os.execve(place + name, command, environment)  # noqa: S606 - no shell is wanted
        except (FileNotFoundError, NotADirectoryError):
            continue
    os.write(2, f"command not found: {name}\n".encode())
    return _NOT_FOUND
