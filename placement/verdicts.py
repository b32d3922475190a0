"""The network verdicts, best first, and which of them a request accepts (design 2, table of `network`)."""

from enum import IntEnum

from placement.request import Interconnect


class Verdict(IntEnum):
    """How the workers of one group reach each other. A smaller value is a better network."""

    ONE_MACHINE = 0
    NVLINK_DOMAIN = 1
    IB_RACK = 2
    IB_FABRIC = 3
    ROCE_RACK = 4
    ROCE = 5
    ETHERNET = 6

    @property
    def code(self) -> str:
        """The code used in documents, variables and the API: `ib_fabric`."""
        return self.name.lower()


ACCEPTED: dict[Interconnect, tuple[Verdict, ...]] = {
    "any": tuple(Verdict),
    "ethernet": (Verdict.ONE_MACHINE, Verdict.ETHERNET),
    "rdma": (Verdict.ONE_MACHINE, Verdict.IB_RACK, Verdict.IB_FABRIC, Verdict.ROCE_RACK, Verdict.ROCE),
    "infiniband": (Verdict.ONE_MACHINE, Verdict.IB_RACK, Verdict.IB_FABRIC),
    "nvlink": (Verdict.ONE_MACHINE, Verdict.NVLINK_DOMAIN),
}
"""A group on one machine is `one_machine` under every interconnect; RDMA rules on its ports hold all the same."""

INFINIBAND_VERDICTS = frozenset({Verdict.IB_RACK, Verdict.IB_FABRIC})
ROCE_VERDICTS = frozenset({Verdict.ROCE_RACK, Verdict.ROCE})
RDMA_VERDICTS = INFINIBAND_VERDICTS | ROCE_VERDICTS
RACK_VERDICTS = frozenset({Verdict.IB_RACK, Verdict.ROCE_RACK})
