"""Health: signs and how long they count; what each answer of a driver or a port means."""

from pathlib import Path

import pytest

from agent.discovery.answers import GpuAnswer, NvFabric, NvLink, Pcie, Xid
from agent.discovery.health import Rule, Sign, Verdict, aged, followed, verdict, worse
from agent.discovery.signs import gpu_signs, xid_signs
from agent.discovery.xids import meaning
from tests.agent.recorded_machines import RecordedMachine, answer_of

AT_ONCE = Rule("faulty", leave=100)
LASTING = Rule("suspect", enter=60, leave=300)
GPU = GpuAnswer(index=3, uuid="GPU-3", product="NVIDIA H100 80GB HBM3", busy=False)


def sign(kind: str, rule: Rule) -> Sign:
    return Sign(kind, f"{kind} seen", rule)


# --- The state machine


def test_a_fault_counts_at_once_and_until_it_was_quiet_for_long() -> None:
    state = followed({}, [sign("xid 79", AT_ONCE)], 1000)
    assert verdict(state) == Verdict("faulty", "xid 79 seen")
    state = followed(state, [], 1099)
    assert verdict(state).health == "faulty"
    state = followed(state, [sign("xid 79", AT_ONCE)], 1099)
    assert verdict(followed(state, [], 1198)).health == "faulty", "it was seen again"
    assert verdict(followed(state, [], 1199)) == Verdict("healthy", "")


def test_a_sign_that_must_last_is_believed_late_and_begins_anew_after_a_gap() -> None:
    state = followed({}, [sign("hot", LASTING)], 0)
    state = followed(state, [sign("hot", LASTING)], 59)
    assert verdict(state).health == "healthy"
    assert verdict(followed(state, [sign("hot", LASTING)], 60)).health == "suspect"
    gap = followed(followed(state, [], 60), [sign("hot", LASTING)], 70)
    assert verdict(followed(gap, [sign("hot", LASTING)], 129)).health == "healthy"
    assert verdict(followed(gap, [sign("hot", LASTING)], 130)).health == "suspect"


def test_once_believed_a_sign_that_comes_and_goes_is_one_episode() -> None:
    state = followed(followed({}, [sign("hot", LASTING)], 0), [sign("hot", LASTING)], 60)
    for now in range(100, 1000, 200):
        state = followed(followed(state, [], now), [sign("hot", LASTING)], now + 100)
        assert verdict(state).health == "suspect"
    assert verdict(followed(state, [], 1299)).health == "suspect"
    assert verdict(followed(state, [], 1300)).health == "healthy"


def test_evidence_names_all_that_counts_the_gravest_first() -> None:
    state = followed({}, [sign("hot", Rule("suspect")), sign("lost", AT_ONCE), sign("slow", LASTING)], 0)
    assert verdict(state) == Verdict("faulty", "lost seen; hot seen")


def test_nothing_seen_because_nobody_could_look_is_not_a_quiet_time_for_what_is_not_believed_yet() -> None:
    state = followed({}, [sign("hot", LASTING), sign("lost", AT_ONCE)], 0)
    assert verdict(aged(state, 99)).health == "faulty"
    later = aged(state, 100)
    assert verdict(later).health == "healthy"
    assert verdict(followed(later, [sign("hot", LASTING)], 110)).health == "suspect"


def test_evidence_is_never_longer_than_the_console_takes() -> None:
    state = followed({}, [Sign(str(n), "x" * 90, AT_ONCE) for n in range(9)], 0)
    assert len(verdict(state).evidence) == 300
    assert len(worse(verdict(state), verdict(state)).evidence) == 300


def test_two_verdicts_together_are_the_worse_one() -> None:
    one, other = Verdict("suspect", "a"), Verdict("faulty", "b")
    assert worse(one, other) == worse(other, one) == Verdict("faulty", "b; a")
    assert worse(one, Verdict("healthy", "")) == one


# --- XIDs


@pytest.mark.parametrize("number", [46, 48, 62, 64, 79, 95, 110, 119, 120, 136, 140, 143, 156, 158])
def test_errors_of_the_hardware_make_a_gpu_faulty(number: int) -> None:
    (found,) = xid_signs([number])
    assert (found.rule.health, found.rule.enter) == ("faulty", 0)


@pytest.mark.parametrize("number", [32, 61, 63, 74, 92, 94, 109, 144, 150, 154, 155, 157, 167, 999])
def test_errors_that_may_mean_something_make_it_suspect(number: int) -> None:
    (found,) = xid_signs([number])
    assert found.rule.health == "suspect"


@pytest.mark.parametrize("number", [8, 11, 13, 25, 31, 39, 43, 45, 60, 68, 69, 80, 105, 135, 137, 139])
def test_errors_of_programs_say_nothing_about_the_gpu(number: int) -> None:
    assert (list(xid_signs([number])), meaning(number)[0]) == ([], "program")


@pytest.mark.parametrize("number", [14, 38, 106, 107, 121, 160, 162])
def test_what_has_no_consequence_is_passed_over(number: int) -> None:
    assert (list(xid_signs([number])), meaning(number)[0]) == ([], "nothing")


def test_an_xid_in_words() -> None:
    assert [found.evidence for found in xid_signs([79, 79, 48])] == [
        "XID 48: double bit ECC error",
        "XID 79: it has fallen off the bus",
    ]


# --- What a GPU's answer means


def signs(
    gpu: GpuAnswer, before: GpuAnswer | None = None, peers: tuple[GpuAnswer, ...] = ()
) -> dict[str, str]:
    return {found.evidence: found.rule.health for found in gpu_signs(gpu, before, (gpu, *peers), ())}


@pytest.mark.parametrize(
    ("changes", "evidence", "health"),
    [
        ({"ecc_uncorrected": 2}, "uncorrected memory errors since the driver was loaded", "suspect"),
        ({"rows_pending": True}, "a memory row waits to be remapped: reset the GPU", "suspect"),
        (
            {"rows_failed": True},
            "a defective memory row could not be remapped: have it replaced",
            "faulty",
        ),
        ({"pages_pending": True}, "a memory page waits to be retired: reset the GPU", "suspect"),
        (
            {"sram_worn": True},
            "more errors in on-chip memory than its vendor allows: have it replaced",
            "faulty",
        ),
        ({"recovery": 1}, "the driver asks for a reset of this GPU", "faulty"),
        ({"recovery": 4}, "the driver asks for a reset once the GPU's work has ended", "suspect"),
        ({"throttle": 0x20}, "slowed down by heat for minutes", "suspect"),
        ({"throttle": 0x40 | 0x8}, "slowed down by heat for minutes", "suspect"),
        ({"throttle": 0x80}, "slowed down by its power supply for minutes", "suspect"),
        (
            {"error": "GPU is lost", "lost": True},
            "it has fallen off the bus, or needs a reset (GPU is lost)",
            "faulty",
        ),
        ({"error": "Unknown Error"}, "it doesn't answer (Unknown Error)", "faulty"),
        (
            {"pcie": Pcie(generation=5, width=8, max_generation=5, max_width=16)},
            "PCIe link x8 instead of x16",
            "suspect",
        ),
        (
            {"busy": True, "pcie": Pcie(generation=1, width=16, max_generation=5, max_width=16)},
            "PCIe link of generation 1 instead of 5 under load",
            "suspect",
        ),
        (
            {"fabric": NvFabric(state=3, status=0, cluster_uuid="", clique=0, health=0b01_10_10)},
            "its NVLink switches report unhealthy routes",
            "suspect",
        ),
    ],
)
def test_signs(changes, evidence: str, health: str) -> None:
    assert signs(GPU.model_copy(update=changes)) == {evidence: health}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"throttle": 0x1 | 0x2 | 0x4 | 0x10},
        {"pcie": Pcie(generation=1, width=16, max_generation=5, max_width=16)},
        {"fabric": NvFabric(state=3, status=0, cluster_uuid="", clique=0, health=0b10101010)},
        {"fabric": NvFabric(state=0, status=0, cluster_uuid="", clique=0)},
    ],
)
def test_no_signs(changes) -> None:
    assert signs(GPU.model_copy(update=changes)) == {}


def links(*active: bool, recoveries: int = 0, replays: int = 0) -> tuple[NvLink, ...]:
    return tuple(
        NvLink(link=number, active=up, recoveries=recoveries, replays=replays)
        for number, up in enumerate(active)
    )


def test_fewer_nvlinks_than_its_likes() -> None:
    whole = GPU.model_copy(update={"uuid": "GPU-4", "links": links(True, True)})
    less = GPU.model_copy(update={"links": links(True, False)})
    assert signs(less, peers=(whole,)) == {"1 NVLinks are up, 2 on GPUs like it here": "suspect"}
    assert signs(whole, peers=(less,)) == {}
    assert signs(less, peers=(whole.model_copy(update={"product": "NVIDIA A100-SXM4-40GB"}),)) == {}


def test_nvlink_errors_that_grow() -> None:
    before = GPU.model_copy(update={"links": links(True, True, recoveries=7, replays=10)})
    assert signs(before, before) == {}
    few = before.model_copy(update={"links": links(True, True, recoveries=7, replays=109)})
    assert signs(few, before) == {}
    many = before.model_copy(update={"links": links(True, True, recoveries=7, replays=110)})
    assert signs(many, before) == {"errors are growing on NVLinks 0, 1": "suspect"}
    recovered = before.model_copy(update={"links": (before.links[0], *links(True, True, recoveries=8)[1:])})
    assert signs(recovered, before) == {"errors are growing on NVLink 1": "suspect"}
    fresh = before.model_copy(update={"links": links(True, True)})
    assert signs(fresh, before) == {}, "counters that began anew"


# --- Over time, on a whole machine


def test_one_bad_gpu_leaves_its_seven_neighbours_alone(tmp_path: Path) -> None:
    here = RecordedMachine("ndr-8", tmp_path)
    answer = answer_of("ndr-8")
    broken = answer.model_copy(update={"xids": (Xid(uuid=answer.gpus[5].uuid, number=79),)})
    here.look(hears=answer)
    found = here.look(hears=broken)

    assert [(gpu.index, gpu.health, gpu.evidence) for gpu in found.gpus if gpu.health != "healthy"] == [
        (5, "faulty", "XID 79: it has fallen off the bus")
    ]
    (event,) = found.events
    assert (event.subject, event.name, event.at) == (f"gpu {answer.gpus[5].uuid}", "GPU 5", 1.8e9)
    assert (event.was, event.health, event.evidence) == (
        "healthy",
        "faulty",
        "XID 79: it has fallen off the bus",
    )

    assert here.look(after=3500, hears=answer).gpus[5].health == "faulty"
    here.restarted()
    assert here.look(hears=answer).gpus[5].health == "faulty", "another agent remembers"
    found = here.look(after=3600, hears=answer)
    assert found.gpus[5].health == "healthy"
    assert [event.health for event in found.events] == ["faulty", "healthy"]


def test_a_reboot_forgets_signs(tmp_path: Path) -> None:
    here = RecordedMachine("ndr-8", tmp_path)
    answer = answer_of("ndr-8")
    here.look(hears=answer.model_copy(update={"xids": (Xid(uuid=answer.gpus[0].uuid, number=48),)}))
    here.restarted(boot_id="the next one")
    assert here.look(hears=answer).gpus[0].health == "healthy"


def test_a_port_that_flaps(tmp_path: Path) -> None:
    here = RecordedMachine("ndr-8", tmp_path)
    here.look(hears=answer_of("ndr-8"))
    here.port("mlx5_2")(**{"counters/link_downed": "2"})
    assert here.look().ports[2].health == "healthy"
    here.port("mlx5_2")(**{"counters/link_downed": "3"})
    port = here.look().ports[2]
    assert (port.state, port.health, port.evidence) == ("ACTIVE", "suspect", "the link goes up and down")

    assert here.look(after=700).ports[2].health == "suspect"
    assert here.look(after=1800).ports[2].health == "healthy"


def test_a_port_that_flaps_and_has_no_counter(tmp_path: Path) -> None:
    here = RecordedMachine("roce-4", tmp_path)
    del here.tree.files["sys/class/infiniband/mlx5_1/ports/1/counters/link_downed"]
    here.look()
    for _ in range(3):
        here.port("mlx5_1")(state="1: DOWN", phys_state="3: Disabled")
        here.look()
        here.port("mlx5_1")(state="4: ACTIVE", phys_state="5: LinkUp")
        port = here.look().ports[1]
    assert (port.health, port.evidence) == ("faulty", "the link has gone down; the link goes up and down")
    assert here.look(after=60).ports[1].health == "suspect"


def test_a_device_that_disappears_in_use_is_shown_for_a_while(tmp_path: Path) -> None:
    here = RecordedMachine("ndr-8", tmp_path, managers={"mlx5_4:1": "0x1"})
    here.look(hears=answer_of("ndr-8"))
    here.remove("sys/class/infiniband/mlx5_4")
    port = {port.device: port for port in here.look().ports}["mlx5_4"]
    assert (port.state, port.rate_gbps, port.health, port.evidence) == (
        "DOWN",
        0.0,
        "faulty",
        "the device has disappeared",
    )
    assert len(here.look(after=900).ports) == 7


def test_a_port_without_a_subnet_manager(tmp_path: Path) -> None:
    here = RecordedMachine("ndr-8", tmp_path)
    here.port("mlx5_0")(state="2: INIT", sm_lid="0x0")
    here.look(hears=answer_of("ndr-8"))
    port = here.look(after=60).ports[0]
    assert (port.state, port.health) == ("INIT", "suspect")
    assert port.evidence == "the link is up, and no subnet manager takes care of it"


def test_daemons_that_are_missing_are_the_machines_health(tmp_path: Path) -> None:
    here = RecordedMachine("ndr-8", tmp_path)
    del here.tree.files["proc/4242/comm"]
    here.remove("sys/module/nvidia_peermem")
    found = here.look(hears=answer_of("ndr-8"))
    assert found.verdict == Verdict(
        "suspect",
        "GPUDirect RDMA: neither nvidia-peermem nor DMA-BUF; "
        "fabric manager: there are NVLink switches, and it doesn't run",
    )
    assert {gpu.health for gpu in found.gpus} == {"healthy"}
