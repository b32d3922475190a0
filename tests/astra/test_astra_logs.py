"""Following logs: not a byte lost or doubled, whatever happens to connections, workers and attempts."""

import signal

from tests.astra.fake_server import Log

LINES = b"".join(b"step %d loss 6.%03d\n" % (step, step) for step in range(2000))


def test_a_dropped_connection_is_taken_up_at_the_missing_byte(astra, console):
    console.add_run("ddp", "Succeeded", workers=1)
    console.logs["ddp-0", 1] = Log(LINES)
    console.cuts = [1000, 1, 17000]
    result = astra("astraeus", "logs", "-f", "ddp-0")
    assert (result.exit_code, result.stdout_bytes) == (0, LINES)
    offsets = [
        seen.query.get("offset")
        for seen in console.seen
        if seen.path.endswith("/logs") and "tail" not in seen.query
    ]
    assert offsets == [None, "1000", "1001", "18001", str(len(LINES))]


def test_bytes_that_the_server_sends_again_are_left_out(astra, console):
    console.add_run("ddp", "Succeeded", workers=1)
    console.logs["ddp-0", 1] = Log(LINES)
    console.cuts, console.rewind = [5000, 700], 333
    assert astra("astraeus", "logs", "-f", "ddp-0").stdout_bytes == LINES


def test_a_plain_read_is_taken_up_too(astra, console):
    console.add_run("ddp", "Running", workers=1)
    console.logs["ddp-0", 1] = Log(LINES)
    console.cuts = [1234]
    assert astra("astraeus", "logs", "ddp-0").stdout_bytes == LINES


def test_tail_counts_once(astra, console):
    console.add_run("ddp", "Succeeded", workers=1)
    console.logs["ddp-0", 1] = Log(LINES)
    console.cuts = [20]
    result = astra("astraeus", "logs", "-f", "--tail", "3", "ddp-0")
    assert result.stdout_bytes == b"".join(LINES.splitlines(keepends=True)[-3:])


def test_lines_come_as_they_are_written_and_the_end_of_the_worker_ends_it(start, console):
    console.add_run("ddp", "Running", workers=1)
    log = console.logs["ddp-0", 1] = Log(b"first\n", closed=False)
    process = start("astraeus", "logs", "-f", "ddp-0")
    assert process.stdout.readline() == b"first\n"
    log.write(b"second\n")
    assert process.stdout.readline() == b"second\n"
    log.write(b"last, without an end of line")
    console.set_state("ddp", "Succeeded")
    log.close()
    out, err = process.communicate(timeout=10)
    assert (process.returncode, out, err) == (0, b"last, without an end of line", b"")


def test_a_server_that_ends_the_answer_early_is_asked_again(start, console):
    console.add_run("ddp", "Running", workers=1)
    console.logs["ddp-0", 1] = Log(b"before\n", closed=True)
    process = start("astraeus", "logs", "-f", "ddp-0")
    assert process.stdout.readline() == b"before\n"
    console.logs["ddp-0", 1].write(b"after\n")
    assert process.stdout.readline() == b"after\n"
    console.set_state("ddp", "Succeeded")
    assert process.wait(10) == 0


def test_the_next_attempt_is_followed_from_its_beginning(start, console):
    console.add_run("ddp", "Running", workers=1)
    first = console.logs["ddp-0", 1] = Log(b"attempt one\n", closed=False)
    process = start("astraeus", "logs", "-f", "ddp-0")
    assert process.stdout.readline() == b"attempt one\n"
    console.logs["ddp-0", 2] = Log(b"attempt two, longer than the first\n")
    console.set_state("ddp", "Succeeded")
    console.newest["ddp-0"] = 2
    first.write(b"last words\n")
    first.close()
    out, err = process.communicate(timeout=10)
    assert out == b"last words\nattempt two, longer than the first\n"
    assert err == b"ddp-0: attempt 2\n"


def test_a_failed_worker_whose_run_goes_on_may_come_back(start, console):
    console.add_run("ddp", "Running", workers=1)
    console.workers["ddp-0"]["state"] = "Failed"
    console.logs["ddp-0", 1] = Log(b"one\n")
    process = start("astraeus", "logs", "-f", "ddp-0")
    assert process.stdout.readline() == b"one\n"
    console.logs["ddp-0", 2] = Log(b"two\n")
    console.newest["ddp-0"] = 2
    console.workers["ddp-0"]["state"] = "Succeeded"
    assert process.stdout.readline() == b"two\n"
    assert process.wait(10) == 0


def test_one_attempt_ends_although_a_newer_one_runs(astra, console):
    console.add_run("ddp", "Running", workers=1)
    console.newest["ddp-0"] = 2
    console.logs["ddp-0", 1] = Log(b"one\n")
    assert astra("astraeus", "logs", "-f", "--attempt", "1", "ddp-0").stdout_bytes == b"one\n"


def test_a_run_s_name_prefixes_every_worker_s_lines(astra, console):
    console.add_run("ddp", "Succeeded", workers=2)
    console.logs["ddp-0", 1] = Log(b"a\nb")
    console.logs["ddp-1", 1] = Log(b"c\n")
    assert astra("astraeus", "logs", "ddp").stdout == "ddp-0 | a\nddp-0 | b\nddp-1 | c\n"
    followed = astra("astraeus", "logs", "-f", "ddp")
    assert sorted(followed.stdout.splitlines()) == ["ddp-0 | a", "ddp-0 | b", "ddp-1 | c"]


def test_a_followed_run_survives_cuts_in_every_worker_s_log(astra, console):
    console.add_run("ddp", "Succeeded", workers=3)
    for rank in range(3):
        console.logs[f"ddp-{rank}", 1] = Log(LINES)
    console.cuts = [100, 2000, 31, 7, 5000, 1]
    result = astra("astraeus", "logs", "-f", "ddp")
    for rank in range(3):
        prefix = f"ddp-{rank} | "
        mine = [line.removeprefix(prefix) for line in result.stdout.splitlines() if line.startswith(prefix)]
        assert mine == LINES.decode().splitlines()


def test_a_followed_run_goes_on_into_its_next_attempt(start, console):
    console.add_run("ddp", "Running", workers=1)
    console.logs["ddp-0", 1] = Log(b"one\n")
    console.workers["ddp-0"]["state"] = "Succeeded"
    process = start("astraeus", "logs", "-f", "ddp")
    assert process.stdout.readline() == b"ddp-0 | one\n"
    console.logs["ddp-0", 2] = Log(b"two\n")
    console.newest["ddp-0"] = 2
    assert process.stdout.readline() == b"ddp-0 | two\n"
    console.set_state("ddp", "Succeeded")
    assert process.wait(15) == 0


def test_a_worker_that_has_no_part_in_the_last_attempt_does_not_hold_the_end_up(astra, console):
    console.add_run("ddp", "Succeeded", workers=2)
    console.workers["ddp-1"]["state"] = "Pending"
    console.logs["ddp-0", 1] = Log(b"done\n")
    assert astra("astraeus", "logs", "-f", "ddp").stdout == "ddp-0 | done\n"


def test_logs_of_nothing(astra, console):
    result = astra("astraeus", "logs", "nosuch")
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr == "Error: There is no worker nosuch here.\n"


def test_a_worker_that_never_started_has_an_empty_log(astra, console):
    console.add_run("ddp", "Pending", workers=1)
    result = astra("astraeus", "logs", "ddp-0")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")


def test_since_is_sent_in_seconds_or_as_a_time(astra, console):
    console.add_run("ddp", "Running", workers=1)
    astra("astraeus", "logs", "--since", "1h30m", "ddp-0")
    astra("astraeus", "logs", "--since", "2026-03-01T14:00:00Z", "ddp-0")
    assert [seen.query["since"] for seen in console.seen] == ["5400s", "2026-03-01T14:00:00+00:00"]
    astra("astraeus", "logs", "--since", "14:03Z", "ddp-0")
    assert console.seen[-1].query["since"].endswith("T14:03:00+00:00")
    for wrong in ("yesterday", "25:00", "2026-02-30T14:00:00Z", "0001-01-01T00:00:00+14:00"):
        result = astra("astraeus", "logs", "--since", wrong, "ddp-0")
        assert (result.exit_code, len(console.seen)) == (2, 3)


def test_raw_bytes_stay_raw_in_a_pipe(astra, console):
    console.add_run("ddp", "Succeeded", workers=1)
    data = b"\xff\xfe\x00 \x1b]0;title\x07 \x1b[31mred\n"
    console.logs["ddp-0", 1] = Log(data)
    assert astra("astraeus", "logs", "ddp-0").stdout_bytes == data


def test_a_reader_that_goes_away_ends_it_quietly(start, console):
    console.add_run("ddp", "Running", workers=1)
    log = console.logs["ddp-0", 1] = Log(b"first\n", closed=False)
    process = start("astraeus", "logs", "-f", "ddp-0")
    assert process.stdout.readline() == b"first\n"
    process.stdout.close()
    log.write(LINES)
    assert process.wait(10) == 141
    assert process.stderr.read() == b""


def test_ctrl_c_ends_a_followed_run_at_once(start, console):
    console.add_run("ddp", "Running", workers=2)
    console.logs["ddp-0", 1] = Log(b"first\n", closed=False)
    console.logs["ddp-1", 1] = Log(b"", closed=False)
    process = start("astraeus", "logs", "-f", "ddp")
    assert process.stdout.readline() == b"ddp-0 | first\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(5) == 130
    assert process.stderr.read() == b""


def test_a_console_that_restarts_is_waited_for(start, console):
    console.add_run("ddp", "Running", workers=1)
    log = console.logs["ddp-0", 1] = Log(b"first\n", closed=False)
    console.cuts = [6]
    console.answers_after_cut = [(503, b"", {})] * 3
    process = start("astraeus", "logs", "-f", "ddp-0")
    assert process.stdout.readline() == b"first\n"
    log.write(b"second\n")
    assert process.stdout.readline() == b"second\n"
    console.set_state("ddp", "Succeeded")
    log.close()
    assert process.wait(10) == 0
    message = f"{console.url} is not ready (it answers 503). Trying again.\n"
    assert process.stderr.read().decode() == message
