"""What an answer says about health: facts in, signs out. Pure; `health` decides what they come to."""

from collections.abc import Iterable, Iterator, Sequence

from agent.discovery.answers import GpuAnswer, NvFabric, NvLink
from agent.discovery.health import Rule, Sign
from agent.discovery.ports import Port
from agent.discovery.xids import meaning

_MINUTE = 60.0
_HOUR = 3600.0

FAULT = Rule("faulty", leave=_HOUR)
"""Something broke: it is believed to be broken for an hour after it was seen last."""
BROKEN = Rule("faulty", leave=5 * _MINUTE)
"""What the hardware says as long as it is so."""
UNREADY = Rule("faulty", enter=_MINUTE, leave=_MINUTE)
"""So for a moment at every start."""
SIGN = Rule("suspect", leave=30 * _MINUTE)
LASTING = Rule("suspect", enter=5 * _MINUTE, leave=15 * _MINUTE)
SLOW = Rule("suspect", enter=_MINUTE, leave=15 * _MINUTE)

_HW_SLOWDOWN, _SW_THERMAL, _HW_THERMAL, _POWER_BRAKE = 0x8, 0x20, 0x40, 0x80
"""nvmlClocksEventReasons that mean trouble. A power cap (0x4) is what a GPU under full load runs into."""
_FABRIC_FLAGS = {0: "less bandwidth", 4: "unhealthy routes", 6: "access time-outs"}
"""nvmlGpuFabricInfo healthMask: bit at which two bits begin, which are 1 when it is so."""
_MANY_REPLAYS = 100
"""Between two answers: a few are how a link corrects itself."""
_RECOVERIES = {
    1: (BROKEN, "the driver asks for a reset of this GPU"),
    2: (BROKEN, "the driver asks for a reboot"),
    3: (SIGN, "the driver asks to stop traffic between GPUs"),
    4: (SIGN, "the driver asks for a reset once the GPU's work has ended"),
    5: (SIGN, "the driver asks to restart the IMEX domain"),
    6: (BROKEN, "the driver asks for a bus reset of this GPU"),
    7: (BROKEN, "the driver asks for a reboot"),
}
FLAPS = 3
FLAP_SECONDS = 600.0


def gpu_signs(
    gpu: GpuAnswer, before: GpuAnswer | None, peers: Sequence[GpuAnswer], xids: Iterable[int]
) -> Iterator[Sign]:
    """`before`: the same GPU in the answer before; `peers`: all GPUs of this answer; `xids`: since then."""
    yield from xid_signs(xids)
    if gpu.error:
        words = "it has fallen off the bus, or needs a reset" if gpu.lost else "it doesn't answer"
        yield Sign("lost", f"{words} ({gpu.error})", FAULT)
        return
    yield from _memory_signs(gpu)
    yield from _throttle_signs(gpu.throttle)
    yield from _pcie_signs(gpu)
    yield from _link_signs(gpu, before, peers)
    if gpu.fabric is not None:
        yield from _fabric_signs(gpu.fabric)
    if gpu.recovery in _RECOVERIES:
        rule, words = _RECOVERIES[gpu.recovery]
        yield Sign("recovery", words, rule)


def xid_signs(xids: Iterable[int]) -> Iterator[Sign]:
    for number in sorted(set(xids)):
        kind, words = meaning(number)
        if kind in ("fault", "sign"):
            yield Sign(f"xid {number}", f"XID {number}: {words}", FAULT if kind == "fault" else SIGN)


def gone_sign() -> Sign:
    return Sign("gone", "the driver no longer finds it: it has fallen off the bus", FAULT)


def _memory_signs(gpu: GpuAnswer) -> Iterator[Sign]:
    if gpu.ecc_uncorrected:
        yield Sign("ecc", "uncorrected memory errors since the driver was loaded", SIGN)
    if gpu.sram_worn:
        yield Sign("sram", "more errors in on-chip memory than its vendor allows: have it replaced", BROKEN)
    if gpu.rows_failed:
        yield Sign("rows failed", "a defective memory row could not be remapped: have it replaced", BROKEN)
    if gpu.rows_pending:
        yield Sign("rows pending", "a memory row waits to be remapped: reset the GPU", SIGN)
    if gpu.pages_pending:
        yield Sign("pages pending", "a memory page waits to be retired: reset the GPU", SIGN)


def _throttle_signs(reasons: int) -> Iterator[Sign]:
    if reasons & (_SW_THERMAL | _HW_THERMAL):
        yield Sign("hot", "slowed down by heat for minutes", LASTING)
    elif reasons & _POWER_BRAKE:
        yield Sign("power", "slowed down by its power supply for minutes", LASTING)
    elif reasons & _HW_SLOWDOWN:
        yield Sign("slowdown", "slowed down by its hardware for minutes", LASTING)


def _pcie_signs(gpu: GpuAnswer) -> Iterator[Sign]:
    """An idle GPU slows its link down to save power; it doesn't narrow it."""
    pcie = gpu.pcie
    if pcie is None:
        return
    if pcie.width < pcie.max_width:
        yield Sign("pcie width", f"PCIe link x{pcie.width} instead of x{pcie.max_width}", SLOW)
    if gpu.busy and pcie.generation < pcie.max_generation:
        words = f"PCIe link of generation {pcie.generation} instead of {pcie.max_generation} under load"
        yield Sign("pcie generation", words, SLOW)


def _link_signs(gpu: GpuAnswer, before: GpuAnswer | None, peers: Sequence[GpuAnswer]) -> Iterator[Sign]:
    """How many links a GPU should have up, only its likes can tell."""
    up = sum(link.active for link in gpu.links)
    likes = [
        sum(link.active for link in peer.links)
        for peer in peers
        if peer.product == gpu.product and not peer.error
    ]
    if up < max(likes, default=0):
        yield Sign("nvlink down", f"{up} NVLinks are up, {max(likes)} on GPUs like it here", SLOW)
    was = {link.link: link for link in before.links} if before else {}
    growing = [str(link.link) for link in gpu.links if link.link in was and _growing(was[link.link], link)]
    if growing:
        word = "NVLink" if len(growing) == 1 else "NVLinks"
        yield Sign("nvlink errors", f"errors are growing on {word} {', '.join(growing)}", SIGN)


def _growing(was: NvLink, now: NvLink) -> bool:
    recovered = was.recoveries is not None and now.recoveries is not None and now.recoveries > was.recoveries
    replayed = (
        was.replays is not None and now.replays is not None and now.replays - was.replays >= _MANY_REPLAYS
    )
    return recovered or replayed


def _fabric_signs(fabric: NvFabric) -> Iterator[Sign]:
    if fabric.waits:
        yield Sign("fabric", "it waits for its NVLink switches: is the fabric manager running?", UNREADY)
    elif fabric.done and fabric.status != 0:
        yield Sign("fabric", f"its NVLink switches refused it (error {fabric.status})", UNREADY)
    for bit, words in _FABRIC_FLAGS.items():
        if fabric.health >> bit & 3 == 1:
            yield Sign(f"fabric {bit}", f"its NVLink switches report {words}", SLOW)


def port_signs(port: Port, *, was_active: bool, downs: int) -> Iterator[Sign]:
    """`was_active`: since the machine started; `downs`: how often the link went down in the last FLAP_SECONDS."""
    if downs >= FLAPS:
        yield Sign("flapping", "the link goes up and down", SIGN)
    if port.active:
        return
    if port.physical_state == "LinkUp" and port.link_layer == "InfiniBand":
        yield Sign("no manager", "the link is up, and no subnet manager takes care of it", SLOW)
    elif was_active:
        yield Sign("down", "the link has gone down", Rule("faulty", leave=_MINUTE))


def port_gone_sign() -> Sign:
    return Sign("gone", "the device has disappeared", Rule("faulty", leave=15 * _MINUTE))
