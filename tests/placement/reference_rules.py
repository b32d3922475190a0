"""The rules for one machine once more, the naive way: every port and every GPU looked at, one after the other.

Shares nothing with the engine: facts and request are read as plain values, and every code, state and link layer is a
string of this file's own (`placement` is imported for the type checker alone).
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from placement import GpuFacts, GroupRequest, MachineFacts, PortFacts, Request

INFINIBAND, ROCE = "infiniband", "ethernet"
LINKS = {"infiniband": [INFINIBAND], "rdma": [INFINIBAND, ROCE]}
"""Interconnects that ask for RDMA, and the link layers that do."""

Fabric = tuple[str, str]
"""Link layer and name; RoCE ports without a fabric share the name ""."""

ADMISSION = (
    "pool_not_allowed",
    "not_in_pools",
    "not_named",
    "label_missing",
    "excluded",
    "same_run",
)
"""Codes by which request and policy choose machines, before anything about the machine itself."""


class Rules:
    def __init__(self, machines: "Iterable[MachineFacts]", request: "Request", storage: frozenset[str]):
        self.machines = sorted(machines, key=lambda machine: machine.name)
        self.request = request
        self.storage = storage

    # Ports and fabrics.

    def fabric_of(self, port: "PortFacts") -> Fabric | None:
        if port.fabric in self.storage or (not port.fabric and port.link == INFINIBAND):
            return None
        return (port.link, port.fabric or "")

    def good_ports(
        self, machine: "MachineFacts", group: "GroupRequest", links: list[str]
    ) -> "list[PortFacts]":
        """Ports that count for RDMA: up, on a compute fabric, fast enough."""
        return [
            port
            for port in machine.ports
            if port.link in links
            and port.up
            and self.fabric_of(port)
            and max(port.gbps, 0) >= (group.min_gbps or 0)
        ]

    def fabrics_of(self, ports: "Iterable[PortFacts]") -> set[Fabric]:
        return {fabric for port in ports if (fabric := self.fabric_of(port))}

    def named_ports(self, machine: "MachineFacts") -> "list[PortFacts]":
        """Ports on a compute fabric that has a name, up or not."""
        return [port for port in machine.ports if (fabric := self.fabric_of(port)) and fabric[1]]

    def home(self, machine: "MachineFacts") -> Fabric | None:
        """The fabric with most of its ports; among equals the first by name, InfiniBand before RoCE."""
        named = [fabric for port in self.named_ports(machine) if (fabric := self.fabric_of(port))]
        order = sorted(set(named), key=lambda fabric: (-named.count(fabric), fabric[1], fabric[0] == ROCE))
        return order[0] if order else None

    # The rules.

    def failed(self, machine: "MachineFacts", group: "GroupRequest", count: int, split: int) -> set[str]:
        """Codes of every rule that refuses this machine for one of `count` workers with `split` GPUs each."""
        checks = (
            self._admission(machine, group),
            self._state(machine),
            self._places(machine, group, count),
            self._amounts(machine, group, split),
            self._ports(machine, group) if group.interconnect in LINKS else {},
            self._gpus(machine, group, split) if split else {},
        )
        return {code for check in checks for code, refused in check.items() if refused}

    def _admission(self, machine: "MachineFacts", group: "GroupRequest") -> dict[str, bool]:
        chosen, allowed = group.selection, self.request.allowed_pools
        labels = machine.labels
        return {
            "pool_not_allowed": allowed is not None and machine.pool not in allowed,
            "not_in_pools": chosen.pools is not None and machine.pool not in chosen.pools,
            "not_named": chosen.machines is not None and machine.name not in chosen.machines,
            "label_missing": any(labels.get(key) != value for key, value in chosen.match_labels.items()),
            "excluded": machine.name in chosen.exclude_machines,
            "same_run": machine.name in self.request.occupied,
            "pool_cap": machine.pool in self.request.over_cap,
            "pool_guaranteed": machine.pool in self.request.guaranteed_to_others,
            "reserved": machine.name in self.request.reserved,
            "drive_missing": not group.drives <= machine.drives,
        }

    @staticmethod
    def _state(machine: "MachineFacts") -> dict[str, bool]:
        states = {str(flag.name).lower() for flag in machine.state}
        hindrances = ("cordoned", "draining", "unreachable", "stale_agent", "quarantined", "contested")
        said = {name: name in states for name in hindrances}
        return {**said, "not_ready": not states & {"ready", "unreachable", "quarantined"}}

    def _places(self, machine: "MachineFacts", group: "GroupRequest", count: int) -> dict[str, bool]:
        levels = {group.keep_within, group.spread}
        joined = group.interconnect == "nvlink" and count > 1
        outside = group.keep_within == "fabric" and self._on_no_fabric(machine, group)
        return {
            "no_rack": "rack" in levels and not machine.rack,
            "no_nvlink_domain": ("nvlink_domain" in levels or joined) and not machine.nvlink_domain,
            "no_fabric": outside or (group.spread == "fabric" and self.home(machine) is None),
        }

    def _on_no_fabric(self, machine: "MachineFacts", group: "GroupRequest") -> bool:
        named, links = self.named_ports(machine), LINKS.get(group.interconnect)
        if links is None:
            return not any(port.up for port in named)
        if not any(port.link in links for port in named):
            return True
        good = self.good_ports(machine, group, links)
        return bool(good) and not any(port in named for port in good)

    def _ports(self, machine: "MachineFacts", group: "GroupRequest") -> dict[str, bool]:
        links, speed = LINKS[group.interconnect], group.min_gbps or 0
        present = [port for port in machine.ports if port.link in links]
        usable = [port for port in present if self.fabric_of(port)]
        bad = bool(usable) and not self.good_ports(machine, group, links)
        any_up = any(port.up for port in usable)
        would = any(port.gbps >= speed and not port.up for port in usable)
        return {
            "no_rdma_port": not present,
            "port_no_fabric": bool(present) and not usable,
            "port_slow": bad and (any_up or all(port.gbps < speed for port in usable)),
            "port_down": bad and (not any_up or would),
        }

    # GPUs, cores and memory.

    @staticmethod
    def of_model(machine: "MachineFacts", group: "GroupRequest") -> "list[GpuFacts]":
        return [gpu for gpu in machine.gpus if not group.models or gpu.model in group.models]

    def right_gpus(self, machine: "MachineFacts", group: "GroupRequest") -> "list[GpuFacts]":
        """GPUs of a model and with a memory as asked, whatever their state."""
        return [gpu for gpu in self.of_model(machine, group) if gpu.memory_bytes >= group.min_memory_bytes]

    def _gpus(self, machine: "MachineFacts", group: "GroupRequest", split: int) -> dict[str, bool]:
        of_model, right = self.of_model(machine, group), self.right_gpus(machine, group)
        sound = [gpu for gpu in right if not gpu.faulty]
        free = [gpu for gpu in sound if not gpu.held]
        suspects = [gpu for gpu in sound if gpu.suspect]
        healthy = [gpu for gpu in free if not gpu.suspect]
        enough = len(right) >= split
        never = len(sound) - len(suspects) < split
        now = len(free) >= split > len(healthy)
        return {
            "no_gpus": not machine.gpus,
            "other_model": bool(machine.gpus) and not of_model,
            "too_few_gpus": 0 < len(of_model) < split,
            "gpu_memory": len(right) < min(len(of_model), split),
            "gpus_faulty": enough and len(sound) < split,
            "gpus_busy": enough and len(free) < split and len(free) < len(sound),
            "gpus_suspect": group.healthy_only and enough and bool(suspects) and (never or now),
        }

    def _amounts(self, machine: "MachineFacts", group: "GroupRequest", split: int) -> dict[str, bool]:
        return {
            "cpu_short": machine.cpu_free_millicores < self.cores(machine, group, split),
            "memory_short": machine.memory_free_bytes < self.memory(machine, group, split),
        }

    def cores(self, machine: "MachineFacts", group: "GroupRequest", split: int) -> int:
        """Millicores of one worker there."""
        fixed, per_gpu = group.cpu_millicores, group.cpu_millicores_per_gpu
        return self._amount(fixed, per_gpu, machine.cpu_millicores, machine, split)

    def memory(self, machine: "MachineFacts", group: "GroupRequest", split: int) -> int:
        """Bytes of one worker there."""
        fixed, per_gpu = group.memory_bytes, group.memory_bytes_per_gpu
        return self._amount(fixed, per_gpu, machine.memory_bytes, machine, split)

    @staticmethod
    def _amount(
        fixed: int | None, per_gpu: int | None, total: int, machine: "MachineFacts", split: int
    ) -> int:
        if fixed is not None:
            return fixed
        if per_gpu is not None:
            return per_gpu * split
        return total * min(split, len(machine.gpus)) // len(machine.gpus) if machine.gpus else 0
