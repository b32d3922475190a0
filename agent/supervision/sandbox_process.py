"""The bubblewrap process of a worker: started so that it builds the sandbox and then waits at a gate.

How it tells what it does:
* `status`, a pipe: a line with the pid of the sandbox's process 1, and at the end one with its exit code.
  An exit code comes only when the command was executed.
* `ready`, a socket whose other end is the source of the last file that bubblewrap copies: it hangs up when
  the last mount is done.
* `gate`, a FIFO: bubblewrap reads one byte of it before it goes on. Its end is open for writing too, so that
  the supervisor's death leaves it waiting instead of letting it go on at an end-of-file.
"""

import _signal  # type: ignore[import-not-found]  # typeshed knows only `signal`, which takes 5 ms to load
import _socket
import fcntl
import os

from agent.supervision.processes import process_started, sharers
from agent.supervision.records import read
from agent.supervision.secrets import Secrets

STATUS_FD, GATE_FD, ARGS_FD, READY_FD, SECRET_ARGS_FD, FIRST_FILE_FD = 10, 11, 12, 13, 14, 20
PIPE_BYTES = 1 << 20
_F_SETPIPE_SZ = 1031
_SIGPIPE, _SIGXFSZ = 13, 25


class SandboxProcess:
    """`pid` and `fd` are bubblewrap's own, `child` and `child_fd` (0 and -1 until known) process 1's."""

    def __init__(self, settings: dict[str, str], secrets: Secrets) -> None:
        self.child = 0
        self.child_fd = -1
        self.child_started = 0
        self.code: int | None = None
        self._status_text = b""
        self.gate = os.open("gate", os.O_RDWR)
        self._ready, ready_theirs = _socket.socketpair()
        self._ready.shutdown(_socket.SHUT_WR)
        self.ready = self._ready.fileno()
        self.status, status_theirs = os.pipe()
        self.output, output_theirs = os.pipe()
        fcntl.fcntl(self.output, _F_SETPIPE_SZ, PIPE_BYTES)
        for descriptor in (self.status, self.output):
            os.set_blocking(descriptor, False)
        theirs = {STATUS_FD: status_theirs, ARGS_FD: os.open("sandbox.args", os.O_RDONLY)}
        if secrets.options is not None:
            theirs[SECRET_ARGS_FD] = secrets.options
        files = [os.open(f"files/{number}", os.O_RDONLY) for number in range(int(settings["files"]))]
        theirs |= {FIRST_FILE_FD + number: file for number, file in enumerate([*files, *secrets.files])}
        command = read("command.args").split(b"\0")[:-1]
        self.pid = os.fork()
        if self.pid == 0:
            _become_bubblewrap(
                settings,
                command,
                theirs | {GATE_FD: self.gate, READY_FD: ready_theirs.fileno()},
                output_theirs,
            )
        ready_theirs.close()
        for descriptor in (output_theirs, *theirs.values()):
            os.close(descriptor)
        self.fd = os.pidfd_open(self.pid)

    def ready_close(self) -> None:
        self._ready.close()

    def status_read(self) -> bool:
        """Take in what the status pipe has. False when that was nothing."""
        try:
            data = os.read(self.status, 4096)
        except BlockingIOError:
            return False
        *lines, self._status_text = (self._status_text + data).split(b"\n")
        for line in lines:
            child, code = _number(line, b'"child-pid":'), _number(line, b'"exit-code":')
            if child is not None:
                self._child_found(child)
            if code is not None:
                self.code = code
        return bool(data)

    def _child_found(self, child: int) -> None:
        try:
            self.child_fd = os.pidfd_open(child)
            self.child_started = process_started(child)
        except OSError:  # gone already; bubblewrap says why
            return
        self.child = child

    def orphan_find(self) -> bool:
        """Whether bubblewrap, now gone, has left a process 1 of which it had not told: it has our gate open."""
        for pid in sharers(self.gate, GATE_FD):
            self._child_found(pid)
        return bool(self.child)

    def release(self) -> None:
        os.write(self.gate, b"x")

    def signal(self, signum: int) -> None:
        """To process 1 of the sandbox: bubblewrap itself would die of it without passing it on."""
        try:
            if self.child_fd >= 0:
                _signal.pidfd_send_signal(self.child_fd, signum)
            else:
                os.kill(self.pid, signum)
        except ProcessLookupError:
            return


def _number(line: bytes, key: bytes) -> int | None:
    _, found, rest = line.partition(key)
    return int(rest.split(b",")[0].strip(b" }")) if found else None


def _become_bubblewrap(
    settings: dict[str, str], command: list[bytes], theirs: dict[int, int], output: int
) -> None:
    """In the forked child: never returns."""
    try:
        above = max(theirs) + 1  # out of the way of every number that one of them is to get
        high = {key: fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above) for key, fd in theirs.items()}
        null = os.open("/dev/null", os.O_RDONLY)
        for key, descriptor in ((0, null), (1, output), (2, output), *high.items()):
            os.dup2(descriptor, key)
        for signum in (_SIGPIPE, _SIGXFSZ):  # Python ignores them, and what is ignored stays so
            _signal.signal(signum, _signal.SIG_DFL)
        with open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123 - no pathlib here, see the package
            file.write("500")  # the machine's own services outlive a worker that takes all memory
        _become_user(settings)
        numbers = [number for number in (ARGS_FD, SECRET_ARGS_FD) if number in theirs]
        options = [word for number in numbers for word in (b"--args", str(number).encode())]
        arguments = [b"bwrap", *options, b"--", *command]
        os.execve(settings["bwrap"], arguments, {"PATH": "/usr/bin:/bin"})  # noqa: S606 - no shell is wanted
    except BaseException as error:  # noqa: BLE001 - whatever it is, this is the way to tell it
        os.write(2, f"bwrap: {error!r}\n".encode())
    finally:
        os._exit(127)


def _become_user(settings: dict[str, str]) -> None:
    if not settings["uid"]:
        return
    uid, gid = int(settings["uid"]), int(settings["gid"])
    os.setgroups([int(group) for group in settings["groups"].split(",") if group])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
