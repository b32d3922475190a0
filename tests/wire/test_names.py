"""Which names are names."""

import pytest

from wire import names

DNS_LABELS = (names.check_dns_label, names.check_slug, names.check_run_name)


@pytest.mark.parametrize("check", DNS_LABELS)
@pytest.mark.parametrize("text", ["a", "0", "a-b", "ddp-resnet50", "a" * 52])
def test_a_dns_label(check, text):
    assert check(text) == text


@pytest.mark.parametrize("check", DNS_LABELS)
@pytest.mark.parametrize(
    "text", ["", "-a", "a-", "A", "a_b", "a.b", "a b", "a\n", "ä", "a\u202e", "a\x00", "a" * 64]
)
def test_no_dns_label(check, text):
    with pytest.raises(names.BadName):
        check(text)


@pytest.mark.parametrize("text", ["gpu-01", "gpu-01.rack2.example.com", "10.0.0.1", ".".join(["a" * 63] * 3)])
def test_a_machine(text):
    assert names.check_machine_name(text) == text


@pytest.mark.parametrize("text", ["", "GPU-01", "gpu..a", "gpu.", ".gpu", "a" * 64, ".".join(["a" * 63] * 4)])
def test_no_machine(text):
    with pytest.raises(names.BadName):
        names.check_machine_name(text)


@pytest.mark.parametrize("text", ["a", "A_b.c-d", "topology.astraeus.io/rack", "x/" + "a" * 63])
def test_a_label_key(text):
    assert names.check_label_key(text) == text


@pytest.mark.parametrize("text", ["", "/a", "a/", "a/b/c", "A.io/b", "-a", "a-", "a" * 64, "a b", "a/ä"])
def test_no_label_key(text):
    with pytest.raises(names.BadName):
        names.check_label_key(text)


@pytest.mark.parametrize("text", ["", "a", "A_b.c-1", "a" * 63])
def test_a_label_value(text):
    assert names.check_label_value(text) == text


@pytest.mark.parametrize("text", ["-", "a-", "a" * 64, "a b", "a/b", "a\n"])
def test_no_label_value(text):
    with pytest.raises(names.BadName):
        names.check_label_value(text)


@pytest.mark.parametrize("text", ["PATH", "_x", "a1"])
def test_a_variable(text):
    assert names.check_env_name(text) == text


@pytest.mark.parametrize("text", ["", "1A", "A-B", "A=B", "A B", "A\n", "Ä", "A.B", "A" * 256])
def test_no_variable(text):
    with pytest.raises(names.BadName):
        names.check_env_name(text)


def test_workers_are_called_after_run_and_group():
    assert names.worker_names("a", [("", 2)]) == ("a-0", "a-1")
    assert names.worker_names("a", [("x", 1), ("y", 2)]) == ("a-x-0", "a-y-0", "a-y-1")


def test_messages_show_nothing_invisible_and_stay_short():
    assert names.shown("a\u202eb\n") == "`a\\u202eb\\u000a`"
    assert names.shown("x" * 100) == f"`{'x' * 59}…`"
