"""PostgreSQL and Redis as `./dev` starts them: where they lie, who reaches them, what a kill leaves."""

import os
import shutil
import signal
import stat
import time

import psutil
import psycopg
import pytest
import redis

from tests.local.serving import clean_env, first_line, spawn, wait_gone

pytestmark = pytest.mark.processes


def query(serving, statement):
    with psycopg.connect(serving.database_url, autocommit=True) as connection:
        return connection.execute(statement)


def works(serving):
    """Both services take what the console would ask of them."""
    with psycopg.connect(serving.database_url, autocommit=True) as connection:
        role = connection.execute(
            "SELECT current_user, usesuper FROM pg_user WHERE usename = current_user"
        ).fetchone()
        connection.execute("CREATE DATABASE made_by_the_role")
        connection.execute("DROP DATABASE made_by_the_role")
    with redis.Redis.from_url(serving.redis_url) as client:
        policy = client.config_get("maxmemory-policy")
    return role == ("astraeus", False) and policy == {"maxmemory-policy": "noeviction"}


def test_both_answer_and_are_gone_after_the_end(tmp_path, serve):
    serving = serve(tmp_path)
    assert works(serving)
    assert serving.end() == 0
    serving.wait_gone()


def test_only_this_machine_reaches_them_and_by_tcp_only(tmp_path, serve):
    serving = serve(tmp_path)
    listening = [
        (psutil.Process(pid).name(), connection.laddr[0])
        for pid in serving.pids
        for connection in psutil.Process(pid).net_connections("all")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert sorted(listening) == [("postgres", "127.0.0.1"), ("redis-server", "127.0.0.1")]
    assert not [path for path in tmp_path.rglob("*") if path.is_socket()]


def test_a_wrong_password_is_refused(tmp_path, serve):
    serving = serve(tmp_path)
    password = psycopg.conninfo.conninfo_to_dict(serving.database_url)["password"]
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(serving.database_url.replace(password, "guess"))
    with (
        redis.Redis.from_url(serving.redis_url.replace("//:", "//:wrong")) as client,
        pytest.raises(redis.AuthenticationError),
    ):
        client.ping()


def test_secrets_are_for_the_owner_only_and_in_no_command_line(tmp_path, serve):
    serving = serve(tmp_path)
    directory = tmp_path / ".astraeus" / "services"
    secrets = list((directory / "secrets").iterdir())
    assert {file.name for file in secrets} == {"postgres", "database", "redis"}
    private = [*secrets, directory / "redis" / "redis.conf"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in private} == {0o600}
    assert stat.S_IMODE((tmp_path / ".astraeus").stat().st_mode) == 0o700
    command_lines = " ".join(part for pid in serving.pids for part in psutil.Process(pid).cmdline())
    assert not [file.name for file in secrets if file.read_text() in command_lines]


def test_data_are_still_there_after_a_restart(tmp_path, serve):
    serving = serve(tmp_path, durable=True)
    query(serving, "CREATE TABLE kept AS SELECT 7 AS number")
    serving.end()
    assert query(serve(tmp_path, durable=True), "SELECT number FROM kept").fetchone() == (7,)


@pytest.mark.parametrize("which", ["keeper", "worker", "both"])
def test_kill_leaves_no_process_and_no_data_are_lost(tmp_path, serve, which):
    serving = serve(tmp_path, durable=True)
    query(serving, "CREATE TABLE kept AS SELECT 7 AS number")
    for pid in {
        "keeper": [serving.keeper.pid],
        "worker": [serving.pid],
        "both": [serving.keeper.pid, serving.pid],
    }[which]:
        os.kill(pid, signal.SIGKILL)
    serving.wait_gone()
    assert query(serve(tmp_path, durable=True), "SELECT number FROM kept").fetchone() == (7,)


def test_kill_at_any_moment_of_the_first_start_does_not_break_the_next(tmp_path, serve):
    for delay in (0.3, 0.6, 0.9, 1.3):
        root = tmp_path / str(delay)
        root.mkdir()
        process = spawn(root)
        time.sleep(delay)  # the moment is the point here, nothing is waited for
        process.kill()
        process.communicate()
        assert works(serve(root)), f"after a kill {delay} s into the first start"


def test_a_server_killed_by_hand_is_no_obstacle(tmp_path, serve):
    serving = serve(tmp_path)
    for pid in serving.pids:
        os.kill(pid, signal.SIGKILL)
    wait_gone(serving.pids)
    serving.end()
    assert works(serve(tmp_path))


def test_the_pid_of_a_dead_server_may_belong_to_somebody_else_by_now(tmp_path, serve):
    serve(tmp_path).end()
    data = tmp_path / ".astraeus" / "services" / "postgres" / "data"
    (data / "postmaster.pid").write_text(f"{os.getppid()}\n{data}\n1\n5432\n\n127.0.0.1\n\nready\n")
    assert works(serve(tmp_path))


def test_data_of_tests_that_are_broken_are_made_anew(tmp_path, serve):
    serve(tmp_path).end()
    data = tmp_path / ".astraeus" / "services" / "postgres" / "data"
    (data / "global" / "pg_control").unlink()
    assert works(serve(tmp_path))


def test_durable_data_that_are_broken_are_reported_and_kept(tmp_path, serve):
    serve(tmp_path, durable=True).end()
    control = tmp_path / ".astraeus" / "services" / "postgres" / "data" / "global" / "pg_control"
    control.rename(control.with_name("moved"))
    with spawn(tmp_path, durable=True) as process:
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert b"./dev: PostgreSQL ended with status" in errors
    assert b"pg_control" in errors
    control.with_name("moved").rename(control)
    assert works(serve(tmp_path, durable=True))


@pytest.mark.parametrize(
    "name",
    ["with a space and 'quotes\"", "x" * 150, "ünï $HOME `x`"],
    ids=["space", "150 characters", "unicode"],
)
def test_any_path_will_do(tmp_path, serve, name):
    root = tmp_path / name
    root.mkdir()
    assert works(serve(root))


def test_two_clones_side_by_side(tmp_path, serve):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    first, second = serve(tmp_path / "one"), serve(tmp_path / "two")
    assert works(first)
    assert works(second)
    assert first.database_url != second.database_url


def test_the_same_clone_twice_says_who_is_at_work(tmp_path, serve):
    serving = serve(tmp_path)
    with spawn(tmp_path) as process:
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    expected = f"./dev services already runs in this clone (process {serving.pid})."
    assert expected in errors.decode()


def test_as_another_user(tmp_path, serve, another_user):
    root = tmp_path / "clone"
    root.mkdir()
    for directory in (root, *list(root.parents)[:-2]):
        directory.chmod(0o755)
    shutil.chown(root, "nobody", "nogroup")
    serving = serve(root, prefix=another_user)
    assert works(serving)
    assert {psutil.Process(pid).username() for pid in serving.pids} == {"nobody"}
    assert serving.end() == 0


def test_data_of_another_user_are_refused_with_a_sentence(tmp_path, serve, another_user):
    serve(tmp_path).end()
    for directory in (tmp_path, *list(tmp_path.parents)[:-2]):
        directory.chmod(0o755)
    with spawn(tmp_path, prefix=another_user) as process:
        _, errors = process.communicate(timeout=30)
    assert (
        "belongs to root, and you are nobody. Run ./dev as root, or remove that directory" in errors.decode()
    )


def test_as_root_the_server_has_a_user_of_its_own_and_nothing_is_opened_to_it(tmp_path, serve):
    if os.geteuid() != 0:
        pytest.skip("is about root")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    serving = serve(closed)
    assert works(serving)
    assert psutil.Process(serving.pids[0]).username() == "astraeus-postgres"
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700
    assert stat.S_IMODE((closed / ".astraeus").stat().st_mode) == 0o700


def test_named_services_are_used_instead(tmp_path, serve):
    serving = serve(tmp_path)
    named = {"DATABASE_URL": serving.database_url, "REDIS_URL": serving.redis_url}
    other = tmp_path / "other"
    other.mkdir()
    with spawn(other, env={**clean_env(), **named}) as process:
        facts = first_line(process)
    assert serving.database_url in facts
    assert '"pids": []' in facts
