"""Addresses on the mesh, and what an agent may say of its own place there."""

import pytest
from pydantic import ValidationError

from wire.mesh import (
    DEFAULT_RANGE,
    MeshReport,
    bridge_address,
    endpoint_of,
    interface_address,
    subnet_of,
    subnets_in,
    worker_addresses,
)

KEY = "ePYEt2FWV4vlT/T+/GIKhVeAYz6jRB96UX+JVgSVUW4="


def test_a_range_is_divided_into_subnets_by_number():
    assert str(subnet_of(DEFAULT_RANGE, 0)) == "100.64.0.0/24"
    assert str(subnet_of(DEFAULT_RANGE, 257)) == "100.65.1.0/24"
    assert subnets_in(DEFAULT_RANGE) == 16_384
    assert str(subnet_of(DEFAULT_RANGE, 16_383)) == "100.127.255.0/24"
    for beyond in (-1, 16_384):
        with pytest.raises(ValueError, match="has no subnet"):
            subnet_of(DEFAULT_RANGE, beyond)
    assert (subnets_in("10.0.0.0/24"), subnets_in("10.0.0.0/25")) == (1, 0)


def test_a_subnet_has_the_machines_own_two_addresses_and_252_for_workers():
    subnet = subnet_of(DEFAULT_RANGE, 3)
    workers = list(worker_addresses(subnet))
    assert (str(bridge_address(subnet)), str(interface_address(subnet))) == ("100.64.3.1", "100.64.3.254")
    assert (len(workers), workers[0], workers[-1]) == (252, "100.64.3.2", "100.64.3.253")


def test_endpoints_are_addresses_with_ports():
    assert endpoint_of("10.0.0.7", 51820) == "10.0.0.7:51820"
    assert endpoint_of("fd00::7", 51820) == "[fd00::7]:51820"
    assert MeshReport(public_key=KEY, endpoint="[fd00::7]:51820").endpoint == "[fd00::7]:51820"
    assert MeshReport(public_key=KEY).endpoint == ""


@pytest.mark.parametrize(
    "endpoint",
    ["console.example.com:51820", "10.0.0.7", "10.0.0.7:0", "10.0.0.7:65536", "fd00::7:51820", "-x:1"],
)
def test_what_is_no_address_and_port_is_no_endpoint(endpoint):
    with pytest.raises(ValidationError):
        MeshReport(public_key=KEY, endpoint=endpoint)


@pytest.mark.parametrize("key", ["", KEY[:-1], f"{KEY}=", "x" * 44, "remove", f"{KEY[:-2]}\n="])
def test_what_is_no_key_is_refused(key):
    with pytest.raises(ValidationError):
        MeshReport(public_key=key)
