"""`stop`, `restart` and `delete` against a fake console."""


def test_stop_and_restart(astra, console):
    console.add_run("ddp")
    assert astra("astraeus", "stop", "ddp").stdout == "ddp stopping\n"
    assert astra("astraeus", "restart", "ddp").stdout == "ddp restarted\n"
    assert [seen.path.rpartition("/")[2] for seen in console.seen] == ["stop", "restart"]


def test_delete_of_several_goes_on_after_one_that_is_not_there(astra, console):
    console.add_run("a")
    console.add_run("c")
    result = astra("astraeus", "delete", "a", "b", "c")
    assert (result.exit_code, result.stdout) == (3, "a deleted\nc deleted\n")
    assert result.stderr == "b: Error: There is no run b here.\n"


def test_delete_without_waiting(astra, console):
    console.add_run("a")
    assert astra("astraeus", "delete", "--no-wait", "a").stdout == "a is being deleted\n"
    assert "a" in console.runs
