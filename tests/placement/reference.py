"""The rules once more, the naive way: one machine after the other, every set of machines tried.

Shares no code with the engine beyond the facts and the request. Only for clusters of a handful of machines.
"""

from collections.abc import Iterator
from itertools import combinations

from placement import GpuFacts, GroupRequest, MachineFacts, MachineState, PortFacts, Request
from placement.facts import Link

VERDICTS = ["one_machine", "nvlink_domain", "ib_rack", "ib_fabric", "roce_rack", "roce", "ethernet"]
ACCEPTED = {
    "any": set(VERDICTS),
    "ethernet": {"one_machine", "ethernet"},
    "rdma": {"one_machine", "ib_rack", "ib_fabric", "roce_rack", "roce"},
    "infiniband": {"one_machine", "ib_rack", "ib_fabric"},
    "nvlink": {"one_machine", "nvlink_domain"},
}
LINKS: dict[str, list[Link]] = {"infiniband": ["infiniband"], "rdma": ["infiniband", "ethernet"]}

Fabric = tuple[str, str]
"""Link layer and name; RoCE ports without a fabric share the name ""."""


class Reference:
    def __init__(self, machines: list[MachineFacts], request: Request, storage: frozenset[str]) -> None:
        self.machines = sorted(machines, key=lambda machine: machine.name)
        self.request = request
        self.storage = storage

    # Ports and fabrics.

    def fabric_of(self, port: PortFacts) -> Fabric | None:
        if port.fabric in self.storage or (port.fabric is None and port.link == "infiniband"):
            return None
        return (port.link, port.fabric or "")

    def good_ports(self, machine: MachineFacts, group: GroupRequest, links: list[Link]) -> list[PortFacts]:
        """Ports that count for RDMA: up, on a compute fabric, fast enough."""
        return [
            port
            for port in machine.ports
            if port.link in links
            and port.up
            and self.fabric_of(port)
            and max(port.gbps, 0) >= (group.min_gbps or 0)
        ]

    def home(self, machine: MachineFacts) -> Fabric | None:
        named = [fabric for port in machine.ports if (fabric := self.fabric_of(port)) and fabric[1]]
        # Equal numbers of ports: the first by name, InfiniBand before RoCE.
        order = sorted(
            set(named), key=lambda fabric: (-named.count(fabric), fabric[1], fabric[0] != "infiniband")
        )
        return order[0] if order else None

    # The rules.

    def right_gpus(self, machine: MachineFacts, group: GroupRequest) -> list[GpuFacts]:
        of_model = [gpu for gpu in machine.gpus if not group.models or gpu.model in group.models]
        return [gpu for gpu in of_model if gpu.memory_bytes >= group.min_memory_bytes]

    def failed(self, machine: MachineFacts, group: GroupRequest, count: int, split: int) -> set[str]:
        """Codes of every rule that refuses this machine for one worker with `split` GPUs."""
        checks = (
            self._admission(machine, group),
            self._state(machine),
            self._places(machine, group, count),
            self._amounts(machine, group, split),
            self._ports(machine, group) if group.interconnect in LINKS else {},
            self._gpus(machine, group, split) if split else {},
        )
        return {code for check in checks for code, refused in check.items() if refused}

    def _admission(self, machine: MachineFacts, group: GroupRequest) -> dict[str, bool]:
        chosen, allowed = group.selection, self.request.allowed_pools
        return {
            "pool_not_allowed": allowed is not None and machine.pool not in allowed,
            "not_in_pools": chosen.pools is not None and machine.pool not in chosen.pools,
            "not_named": chosen.machines is not None and machine.name not in chosen.machines,
            "label_missing": any(
                machine.labels.get(key) != value for key, value in chosen.match_labels.items()
            ),
            "excluded": machine.name in chosen.exclude_machines,
            "same_run": machine.name in self.request.occupied,
            "drive_missing": not group.drives <= machine.drives,
        }

    def _state(self, machine: MachineFacts) -> dict[str, bool]:
        states = ["cordoned", "draining", "unreachable", "stale_agent", "quarantined"]
        said = {name: bool(machine.state & MachineState[name.upper()]) for name in states}
        why = MachineState.READY | MachineState.UNREACHABLE | MachineState.QUARANTINED
        return {**said, "not_ready": not machine.state & why}

    def _places(self, machine: MachineFacts, group: GroupRequest, count: int) -> dict[str, bool]:
        levels = {group.keep_within, group.spread}
        joins = group.interconnect == "nvlink" and count > 1
        outside = group.keep_within == "fabric" and self._on_no_fabric(machine, group)
        return {
            "no_rack": "rack" in levels and machine.rack is None,
            "no_nvlink_domain": ("nvlink_domain" in levels or joins) and machine.nvlink_domain is None,
            "no_fabric": outside or (group.spread == "fabric" and self.home(machine) is None),
        }

    def _on_no_fabric(self, machine: MachineFacts, group: GroupRequest) -> bool:
        named = [port for port in machine.ports if (fabric := self.fabric_of(port)) and fabric[1]]
        links = LINKS.get(group.interconnect)
        if links is None:
            return not any(port.up for port in named)
        if not any(port.link in links for port in named):
            return True
        good = self.good_ports(machine, group, links)
        return bool(good) and not any(port in named for port in good)

    def _ports(self, machine: MachineFacts, group: GroupRequest) -> dict[str, bool]:
        links, speed = LINKS[group.interconnect], group.min_gbps or 0
        present = [port for port in machine.ports if port.link in links]
        usable = [port for port in present if self.fabric_of(port)]
        bad = bool(usable) and not self.good_ports(machine, group, links)
        any_up = any(port.up for port in usable)
        return {
            "no_rdma_port": not present,
            "port_no_fabric": bool(present) and not usable,
            "port_slow": bad and (any_up or all(port.gbps < speed for port in usable)),
            "port_down": bad and (not any_up or any(port.gbps >= speed and not port.up for port in usable)),
        }

    def _gpus(self, machine: MachineFacts, group: GroupRequest, split: int) -> dict[str, bool]:
        of_model = [gpu for gpu in machine.gpus if not group.models or gpu.model in group.models]
        right = self.right_gpus(machine, group)
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

    def _amounts(self, machine: MachineFacts, group: GroupRequest, split: int) -> dict[str, bool]:
        cpu = self.worker_amount(
            group.cpu_millicores, group.cpu_millicores_per_gpu, machine.cpu_millicores, machine, split
        )
        memory = self.worker_amount(
            group.memory_bytes, group.memory_bytes_per_gpu, machine.memory_bytes, machine, split
        )
        return {
            "cpu_short": machine.cpu_free_millicores < cpu,
            "memory_short": machine.memory_free_bytes < memory,
        }

    @staticmethod
    def worker_amount(
        fixed: int | None, per_gpu: int | None, total: int, machine: MachineFacts, split: int
    ) -> int:
        if fixed is not None:
            return fixed
        if per_gpu is not None:
            return per_gpu * split
        return total * min(split, len(machine.gpus)) // len(machine.gpus) if machine.gpus else 0

    # Shapes and sets.

    def shapes(self, group: GroupRequest) -> list[tuple[int, int]]:
        largest = max((len(machine.gpus) for machine in self.machines), default=0)
        if group.gpus == 0:
            return [(group.machines or group.min_nodes or 1, 0)]
        if group.machines:
            return (
                [(group.machines, group.gpus // group.machines)] if group.gpus % group.machines == 0 else []
            )
        counts = range(group.min_nodes or 1, (group.max_nodes or group.gpus) + 1)
        splits = [(count, group.gpus // count) for count in counts if group.gpus % count == 0]
        return [
            (count, split) for count, split in splits if max(group.min_per_machine, 1) <= split <= largest
        ]

    def verdicts(self, members: tuple[MachineFacts, ...], group: GroupRequest) -> set[str]:
        """Every accepted verdict that holds for this set of machines, `keep_within` and `spread` included."""
        if not self._spread_holds(members, group):
            return set()
        holds = {"one_machine"} if len(members) == 1 else set(self._between(members, group))
        return holds & ACCEPTED[group.interconnect]

    def _between(self, members: tuple[MachineFacts, ...], group: GroupRequest) -> Iterator[str]:
        same_rack = self._same(machine.rack for machine in members)
        same_domain = self._same(machine.nvlink_domain for machine in members)
        within = {"rack": same_rack, "nvlink_domain": same_domain}.get(group.keep_within or "", True)
        if not within:
            return
        if group.keep_within != "fabric" or self._shared_fabric(members):
            yield "ethernet"
            if same_domain:
                yield "nvlink_domain"
        if self._rdma_fabric(members, group, "infiniband"):
            yield from ("ib_fabric", "ib_rack") if same_rack else ("ib_fabric",)
        if self._rdma_fabric(members, group, "ethernet"):
            yield from ("roce", "roce_rack") if same_rack else ("roce",)

    @staticmethod
    def _same(places: Iterator[str | None]) -> bool:
        different = set(places)
        return len(different) == 1 and None not in different

    def _shared_fabric(self, members: tuple[MachineFacts, ...]) -> bool:
        """All have a port that is up on one named fabric."""
        each = [{self.fabric_of(port) for port in machine.ports if port.up} for machine in members]
        return any(fabric and fabric[1] for fabric in set.intersection(*each))

    def _rdma_fabric(self, members: tuple[MachineFacts, ...], group: GroupRequest, link: Link) -> bool:
        each = [
            {self.fabric_of(port) for port in self.good_ports(machine, group, [link])} for machine in members
        ]
        shared = set.intersection(*each)
        return any(fabric and (fabric[1] or group.keep_within != "fabric") for fabric in shared)

    def _spread_holds(self, members: tuple[MachineFacts, ...], group: GroupRequest) -> bool:
        if group.spread not in ("rack", "fabric"):
            return True
        places = [machine.rack if group.spread == "rack" else self.home(machine) for machine in members]
        return len(set(places)) == len(places)

    def racks_spanned(self, members: tuple[MachineFacts, ...]) -> int:
        return len({machine.rack or (machine.name,) for machine in members})

    def sets(self, group: GroupRequest) -> Iterator[tuple[int, int, float, int, frozenset[str]]]:
        """Every set of machines that may hold the group: verdict, machines, worst lemon, racks, names."""
        for count, split in self.shapes(group):
            usable = [machine for machine in self.machines if not self.failed(machine, group, count, split)]
            for members in combinations(usable, count):
                for verdict in self.verdicts(members, group):
                    lemon = max(self.request.avoid.get(machine.name, 0.0) for machine in members)
                    names = frozenset(machine.name for machine in members)
                    yield (VERDICTS.index(verdict), count, lemon, self.racks_spanned(members), names)

    def best(self, group: GroupRequest) -> tuple[int, int, float, int] | None:
        """The best that the group can get alone: verdict, machines, worst lemon, racks spanned."""
        return min((found[:4] for found in self.sets(group)), default=None)

    def feasible(self) -> bool:
        """Some choice of disjoint sets holds all groups."""

        def fits(number: int, taken: frozenset[str]) -> bool:
            if number == len(self.request.groups):
                return True
            names = {found[4] for found in self.sets(self.request.groups[number])}
            return any(fits(number + 1, taken | chosen) for chosen in names if not chosen & taken)

        return fits(0, frozenset())
