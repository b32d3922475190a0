"""The machine's RDMA ports over time: what sysfs says, whose subnet they are in, and their health."""

from collections.abc import Iterator

from agent.discovery.flaps import Flaps
from agent.discovery.health import Verdict
from agent.discovery.health_book import HealthBook
from agent.discovery.ports import Port, ports_read
from agent.discovery.signs import port_gone_sign, port_signs
from agent.discovery.subnet_manager import AskSm, Manager, SubnetManagers
from agent.discovery.tree import Tree
from wire.inventory import PortReport

MISSED_SECONDS = 900.0
"""How long a port that has disappeared is still shown: drivers that are loaded anew bring it back."""
_MOST_PORTS = 1024


def _subject(port: Port) -> tuple[str, str]:
    return f"port {port.name}", port.name


class PortWard:
    def __init__(self, tree: Tree, book: HealthBook, ask: AskSm) -> None:
        self._tree = tree
        self._book = book
        self._managers = SubnetManagers(ask)
        self._flaps = Flaps()
        self._was_active: set[str] = set()
        self._last: dict[str, tuple[Port, float]] = {}
        """Each port as it last was, and when."""
        self.ports: tuple[Port, ...] = ()

    def look(self, now: float) -> tuple[PortReport, ...]:
        self.ports = ports_read(self._tree)[:_MOST_PORTS]
        managers = self._managers.of(self.ports, now)
        there = {port.name for port in self.ports}
        reports = [
            self._report(port, managers.get(port.name), self._verdict(port, now)) for port in self.ports
        ]
        self._last |= {port.name: (port, now) for port in self.ports}
        return (*reports, *self._missed(there, now))[:_MOST_PORTS]

    def limits(self, reports: tuple[PortReport, ...]) -> Iterator[str]:
        guessed = sorted(report.device for report in reports if report.guessed)
        if guessed:
            yield (
                "Fabrics of InfiniBand ports are guessed from subnet prefix and manager LID "
                f"({', '.join(guessed[:16])}): sminfo (package infiniband-diags, as root) tells them for sure."
            )

    def _verdict(self, port: Port, now: float) -> Verdict:
        downs = self._flaps.follow(port, now)
        signs = list(port_signs(port, was_active=port.name in self._was_active, downs=downs))
        if port.active:
            self._was_active.add(port.name)
        return self._book.follow(*_subject(port), signs, now)

    def _missed(self, there: set[str], now: float) -> Iterator[PortReport]:
        for name, (port, seen) in list(self._last.items()):
            if name in there:
                continue
            if now - seen >= MISSED_SECONDS:
                del self._last[name]
                self._was_active.discard(name)
                self._book.forget(_subject(port)[0])
                continue
            verdict = self._book.follow(*_subject(port), (port_gone_sign(),), now)
            report = self._report(port, None, verdict)
            yield report.model_copy(update={"state": "DOWN", "physical_state": "", "rate_gbps": 0.0})

    def _report(self, port: Port, manager: Manager | None, verdict: Verdict) -> PortReport:
        return PortReport(
            device=port.device[:64],
            port=port.port,
            link_layer=port.link_layer,
            state=port.state,
            rate_gbps=port.rate_gbps,
            subnet_manager=manager.key[:80] if manager else None,
            guessed=manager.guessed if manager else False,
            netdev=port.netdev,
            physical_state=port.physical_state,
            guid=port.guid,
            lid=port.lid,
            sm_lid=port.sm_lid,
            subnet_prefix=port.subnet_prefix,
            gids=port.gids,
            numa_node=port.numa_node,
            health=verdict.health,
            evidence=verdict.evidence,
        )
