"""What only happens on a terminal: colours, redrawing, questions, and logs that may not steer it."""

import signal

from astra.config import config_path
from tests.astra.fake_server import TOKEN, Log


def test_states_are_coloured(terminal, console):
    console.add_run("ddp", "Running", "2 of 2 workers running")
    assert terminal("astraeus", "runs").read_all().splitlines()[1] == (
        b"ddp" + b" " * 27 + b"main          \x1b[34mRunning     \x1b[0m2 of 2 workers running"
    )


def test_no_color_is_honoured(terminal, console):
    console.add_run("ddp", "Running", "2 of 2 workers running")
    assert b"\x1b" not in terminal("astraeus", "runs", NO_COLOR="1").read_all()


def test_watch_redraws_and_keeps_to_the_screen(terminal, console):
    for number in range(40):
        console.add_run(f"run-{number:02}", "Running", "x" * 100)
    watch = terminal("astraeus", "runs", "--watch", NO_COLOR="1")
    lines = watch.read_until(b"more\r\n").split(b"\r\n")
    assert lines[0].startswith(b"\x1b[H\x1b[JNAME")
    assert [len(lines), lines[-2].decode()] == [25, "… 18 more"]
    assert {len(line) for line in lines[1:-2]} == {80}
    watch.process.send_signal(signal.SIGINT)
    assert watch.process.wait(5) == 130


def test_a_log_can_not_steer_the_terminal_and_colours_end_with_it(terminal, console):
    console.add_run("ddp", "Running", workers=1)
    console.logs["ddp-0", 1] = Log(b"\x1b[31mred\x1b[2J\x1b]0;owned\x07 \xe2\x80\xae10%\r20%\n", closed=False)
    follow = terminal("astraeus", "logs", "-f", "ddp-0")
    assert follow.read_until(b"20%\r\n") == b"\x1b[31mred 10%\r20%\r\n"
    follow.process.send_signal(signal.SIGINT)
    assert follow.read_all().endswith(b"\x1b[0m")
    assert follow.process.wait(5) == 130


def test_prefixed_lines_keep_their_prefix_and_their_own_colours(terminal, console):
    console.add_run("ddp", "Succeeded", workers=2)
    console.logs["ddp-0", 1] = Log(b"10%\r20%\r\n\x1b[31mred\n")
    console.logs["ddp-1", 1] = Log(b"plain\n")
    assert terminal("astraeus", "logs", "ddp").read_all().splitlines() == [
        b"ddp-0 | 20%",
        b"ddp-0 | \x1b[31mred\x1b[0m",
        b"ddp-1 | plain",
    ]


def test_login_asks_for_what_is_missing_and_hides_the_token(terminal, console, environ):
    nothing = {f"ASTRAEUS_{name}": "" for name in ("SERVER", "TOKEN", "WORKSPACE")}
    login = terminal("login", **nothing)
    login.read_until(b"Console's address: ")
    login.type(f"{console.url}\n")
    login.read_until(b"Workspace (organization/workspace): ")
    login.type("acme/vision\n")
    login.read_until(b"API token: ")
    login.type(f"{TOKEN}\n")
    shown = login.read_all()
    assert shown.endswith(b"Kept in %s.\r\n" % str(config_path(environ)).encode())
    assert TOKEN.encode() not in shown
    assert login.process.wait(5) == 0


def test_ctrl_c_at_a_question(terminal, console):
    login = terminal("login", "--server", console.url, "-w", "acme/vision")
    login.read_until(b"API token: ")
    login.process.send_signal(signal.SIGINT)
    assert login.process.wait(5) == 130
