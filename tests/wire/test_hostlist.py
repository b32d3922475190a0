"""Slurm's hostlists, as other programs read them."""

import pytest
from hostlist import expand_hostlist
from hypothesis import given, settings
from hypothesis import strategies as st

from wire.hostlist import compress

HOSTS = st.lists(
    st.from_regex(r"[a-z]{1,3}-?[0-9]{0,3}", fullmatch=True)
    | st.sampled_from(["n08", "n09", "n10", "n99", "n100"]),
    max_size=12,
)


@pytest.mark.parametrize(
    ("hosts", "hostlist"),
    [
        (["gpu-01"], "gpu-01"),
        (["gpu-01", "gpu-02"], "gpu-[01-02]"),
        (["gpu-02", "gpu-01"], "gpu-[02,01]"),
        (["gpu-01", "gpu-02", "gpu-03", "gpu-07"], "gpu-[01-03,07]"),
        (["gpu-9", "gpu-10", "gpu-11"], "gpu-[9-11]"),
        (["gpu-09", "gpu-10"], "gpu-[09-10]"),
        (["n98", "n99", "n100"], "n[98-100]"),
        (["n098", "n099", "n100"], "n[098-100]"),
        (["a1", "b1", "a2"], "a1,b1,a2"),
        (["login", "gpu-1", "gpu-2"], "login,gpu-[1-2]"),
        (["login", "login"], "login,login"),
        (["gpu-1.example.com", "gpu-2.example.com"], "gpu-1.example.com,gpu-2.example.com"),
        (["10.0.0.1", "10.0.0.2"], "10.0.0.[1-2]"),
        (["007", "008"], "007,008"),
        ([], ""),
    ],
)
def test_compress_keeps_the_order(hosts, hostlist):
    assert compress(hosts) == hostlist
    assert expand_hostlist(hostlist, allow_duplicates=True) == hosts


@settings(deadline=None)
@given(HOSTS)
def test_round_trip(hosts):
    assert expand_hostlist(compress(hosts), allow_duplicates=True) == hosts
