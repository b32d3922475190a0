"""What would start a run: what can be done to machines, ports and labels, on drawn clusters."""

import pytest

from placement.whatif import Code
from tests.placement.asking import plain, reference
from tests.placement.offering import SLOW, offered, resources, sentence


def test_the_nearest_speed_that_is_there_is_offered() -> None:
    offer = offered(SLOW, reference(), Code.MIN_GBPS)
    assert offer.changes[0].numbers == {"asked": 400, "instead": 200}
    assert offer.document_patch == resources(network={"min_gbps": 200})
    assert sentence(SLOW, reference(), Code.MIN_GBPS) == (
        "Ask for at least 200 Gb/s instead of 400: it would start on gpu-01 and gpu-02, "
        "one rack on one InfiniBand fabric"
    )


def test_one_port_is_enough() -> None:
    offer = offered(SLOW, reference(), Code.BRING_PORT_UP)
    assert offer.changes[0].numbers == {"targets": [{"machine": "gpu-04", "port": "mlx5_0:1", "gbps": 400}]}
    assert sentence(SLOW, reference(), Code.BRING_PORT_UP) == (
        "Bring port mlx5_0 of gpu-04 up: it would start on gpu-01 and gpu-04, one rack on one InfiniBand fabric"
    )


def test_a_port_on_another_fabric_does_not_hide_the_one_that_is_down() -> None:
    drawing = """
        gpu-01  H100 ....|....  ib:ib-a
        gpu-02  H100 ....|....  ib:ib-ax2-down  ib:ib-bx2
    """
    numbers = offered(drawing, reference(), Code.BRING_PORT_UP).changes[0].numbers
    assert numbers == {"targets": [{"machine": "gpu-02", "port": "mlx5_0:1", "gbps": 400}]}


UNLABELLED = """
    gpu-01  H100 ....|....  ib:ib-a  rack=r1
    gpu-02  H100 ....|....  ib:ib-a
    gpu-03  H100 ....|...x  ib:ib-a  rack=r1
    gpu-04  H100 ....|....  ib:      rack=r1
"""


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (
            Code.KEEP_WITHIN,
            (
                "Keep the workers within one fabric instead of one rack: it would start on gpu-01 and gpu-02, "
                "one InfiniBand fabric"
            ),
        ),
        (
            Code.SET_RACK,
            (
                "Set the rack of gpu-02 to r1, if it is there: it would start on gpu-01 and gpu-02, "
                "one rack on one InfiniBand fabric"
            ),
        ),
        (
            Code.SET_FABRIC,
            (
                "Set the fabric of gpu-04 to ib-a, if it is on it: it would start on gpu-01 and gpu-04, "
                "one rack on one InfiniBand fabric"
            ),
        ),
        (
            Code.REPAIR_GPU,
            (
                "Repair or replace GPU 7 of gpu-03: it would start on gpu-01 and gpu-03, "
                "one rack on one InfiniBand fabric"
            ),
        ),
    ],
)
def test_a_label_that_is_missing_a_gpu_that_is_faulty(code: Code, expected: str) -> None:
    assert sentence(UNLABELLED, reference(keep_within="rack"), code) == expected


def test_an_nvlink_domain_that_is_missing() -> None:
    drawing = """
        gpu-01  H100 ....  nvl=d1
        gpu-02  H100 ....
    """
    request = plain(gpus=8, machines=2, interconnect="nvlink")
    assert sentence(drawing, request, Code.SET_NVLINK_DOMAIN) == (
        "Set the NVLink domain of gpu-02 to d1, if it is in it: it would start on gpu-01 and gpu-02, "
        "one NVLink domain"
    )


def test_as_few_machines_as_are_needed_where_least_is_lacking() -> None:
    """r1 lacks one machine, r2 would need both of its own."""
    drawing = """
        gpu-01  H100 ....  ib:ib-a  rack=r1
        gpu-02  H100 ....  ib:ib-a  rack=r1  state=ready,cordoned
        gpu-03  H100 ....  ib:ib-a  rack=r1  state=ready,cordoned
        gpu-04  H100 ....  ib:ib-a  rack=r2  state=ready,cordoned
        gpu-05  H100 ....  ib:ib-a  rack=r2  state=ready,cordoned
    """
    request = plain(gpus=8, machines=2, interconnect="infiniband", keep_within="rack")
    assert offered(drawing, request, Code.UNCORDON).changes[0].numbers == {"targets": [{"machine": "gpu-02"}]}


@pytest.mark.parametrize(
    ("state", "code", "expected"),
    [
        ("ready,cordoned", Code.UNCORDON, "Uncordon gpu-02"),
        ("ready,draining", Code.UNDRAIN, "Stop draining gpu-02"),
        ("ready,draining,cordoned", Code.UNDRAIN, "Stop draining gpu-02"),
        ("quarantined", Code.END_QUARANTINE, "End the quarantine of gpu-02"),
        ("ready,contested", Code.STOP_COPY, "Stop the second agent of gpu-02"),
        ("ready,stale_agent", Code.UPDATE_AGENT, "Update the agent of gpu-02"),
        ("unreachable", Code.BRING_BACK, "Bring gpu-02 back"),
        ("", Code.BRING_BACK, "Bring gpu-02 back"),
    ],
)
def test_a_machine_that_takes_no_work(state: str, code: Code, expected: str) -> None:
    drawing = f"""
        gpu-01  H100 ....
        gpu-02  H100 ....  state={state}
    """
    end = ": it would start on gpu-01 and gpu-02, Ethernet"
    assert sentence(drawing, plain(gpus=8, machines=2), code) == expected + end
