"""What the form asks, in its order. Words that are not here are those of the document's own schema."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from console.pages.run_form.entries import (
    GPUS,
    RESOURCES,
    SELECTION,
    TEMPLATE,
    TOPOLOGY,
    Amounts,
    Check,
    Command,
    Entry,
    Machines,
    One,
    Options,
    Selected,
    Several,
)
from console.pages.run_form.kinds import DURATION, NAMES, NUMBER, PAIRS, SIZE, TEXT
from console.pages.run_form.probes import PROBE_ENTRIES
from wire.spec.errors import Location

INTERCONNECTS: Final[Options] = (
    ("any", "any, the best there is"),
    ("infiniband", "InfiniBand"),
    ("rdma", "InfiniBand or RoCE"),
    ("nvlink", "NVLink"),
    ("ethernet", "Ethernet"),
)
PREFLIGHTS: Final[Options] = (
    ("", "as the network asks for"),
    ("links", "libraries, devices, ports and addresses"),
    ("none", "none"),
)
WITHIN: Final[Options] = (
    ("", "anywhere"),
    ("fabric", "one fabric"),
    ("rack", "one rack"),
    ("nvlink_domain", "one NVLink domain"),
)
SPREADS: Final[Options] = (
    ("", "no matter"),
    ("machine", "each on another machine"),
    ("rack", "each in another rack"),
    ("fabric", "each on another fabric"),
)
MODES: Final[Options] = (
    ("Any", "all of the workspace's pools"),
    ("Pools", "these pools"),
    ("Machines", "these machines"),
    ("Labels", "machines with these labels"),
)
STARTS: Final[Options] = (("Gang", "all together"), ("Independent", "each worker on its own"))
FAILURES: Final[Options] = (
    ("FailJob", "the run fails"),
    ("RestartJob", "restart all workers"),
    ("RestartTask", "restart that worker alone"),
)
SIGNALS: Final[Options] = tuple(
    (name, name)
    for name in ("SIGTERM", "SIGINT", "SIGQUIT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGKILL")
)

_NETWORK: Final[Location] = (*RESOURCES, "network")

MAIN: Final[tuple[Entry, ...]] = (
    One("name", "Name", (("metadata", "name"),), "Small letters, digits and dashes.", kind=TEXT),
    One("image", "Image", ((*TEMPLATE, "image"),), "registry/path:tag", kind=TEXT),
    Command(
        "command",
        "Command",
        ((*TEMPLATE, "command"), (*TEMPLATE, "args")),
        "As in a shell. Nothing is expanded; for variables write bash -c '…'.",
        "command",
    ),
    One("gpus", "GPUs", ((*GPUS, "count"),), "Of the whole run. Empty: none.", kind=NUMBER),
    Machines("machines", "Machines", widget="machines"),
    Several("models", "GPU model", ((*GPUS, "models"),), "None ticked: any model.", "models"),
    Amounts("amounts", "CPU and memory", hint="Empty: the GPUs' share of the machine.", widget="amounts"),
)

NETWORK: Final[tuple[Entry, ...]] = (
    One(
        "interconnect",
        "Network between workers",
        ((*_NETWORK, "interconnect"),),
        "With InfiniBand the run waits for it; it never falls back to something slower.",
        options=INTERCONNECTS,
    ),
    One(
        "min_gbps",
        "RDMA port speed at least",
        ((*_NETWORK, "min_gbps"),),
        "Gb/s. Slower ports don't count.",
        kind=NUMBER,
        words="at least {} Gb/s",
    ),
    One(
        "preflight",
        "Checks before the start",
        ((*_NETWORK, "preflight"),),
        "On every machine, before any worker starts.",
        options=PREFLIGHTS,
        words="checks: {}",
    ),
)

PLACEMENT: Final[tuple[Entry, ...]] = (
    One(
        "keep_within",
        "Never leave",
        ((*TOPOLOGY, "keep_within"),),
        "All workers there, or the run waits.",
        options=WITHIN,
    ),
    One(
        "spread",
        "Spread",
        ((*TOPOLOGY, "spread"),),
        "For replicas that must not fail together; not for training.",
        options=SPREADS,
    ),
    One(
        "patience",
        "Wait for a better network",
        ((*TOPOLOGY, "patience_seconds"),),
        "Such as 10 min. Waits only for something better than is free now. It loosens no rule.",
        kind=DURATION,
        words="wait {}",
    ),
    Check(
        "healthy",
        "Only healthy GPUs",
        ((*GPUS, "healthy_only"),),
        "Never a GPU with a warning sign.",
        "check",
        words="only healthy GPUs",
    ),
    One(
        "slice",
        "GPUs on one machine at least",
        ((*GPUS, "min_per_machine"),),
        "Where Astraeus chooses the machines: never a smaller slice.",
        kind=NUMBER,
        words="at least {} GPUs on one machine",
    ),
    One(
        "gpu_memory",
        "GPU memory at least",
        ((*GPUS, "min_memory_bytes"),),
        "Such as 80 GB. A number alone is GiB.",
        kind=SIZE,
        words="GPUs of at least {}",
    ),
    Selected("selection", "Machines to choose from", widget="selection", options=MODES),
    One(
        "excluded",
        "Machines to leave out",
        ((*SELECTION, "exclude_machines"),),
        "Names, with commas.",
        kind=NAMES,
        words="not {}",
    ),
)

FAILURE: Final[tuple[Entry, ...]] = (
    One("on_failure", "When a worker fails", (("spec", "on_failure"),), options=FAILURES),
    One(
        "max_restarts",
        "Restarts at most",
        (("spec", "max_restarts"),),
        "Then the run is Failed.",
        kind=NUMBER,
        words="{} restarts",
    ),
    One(
        "time_limit",
        "Time limit",
        ((*TEMPLATE, "time_limit_seconds"),),
        "Such as 1 h. It also lets other runs be planned.",
        kind=DURATION,
        words="time limit {}",
    ),
    One(
        "warning",
        "Warn before the time limit",
        ((*TEMPLATE, "warn_signal_seconds"),),
        "The stop signal comes so long before, too, for a last checkpoint.",
        kind=DURATION,
        words="warned {} before",
    ),
    One("signal", "Stop signal", ((*TEMPLATE, "stop_signal"),), options=SIGNALS),
    One(
        "grace",
        "Time to stop",
        ((*TEMPLATE, "stop_grace_seconds"),),
        "Between the stop signal and SIGKILL.",
        kind=DURATION,
        words="{} to stop",
    ),
    One(
        "hang",
        "Hung after",
        ((*TEMPLATE, "hang_after_seconds"),),
        "No log line for so long and GPUs idle: the worker counts as failed.",
        kind=DURATION,
        words="hung after {}",
    ),
    One(
        "cut_off",
        "Stop when cut off for",
        (("spec", "stop_when_cut_off_seconds"),),
        "A worker whose machine can't reach the console for so long is stopped there.",
        kind=DURATION,
        words="stopped when cut off for {}",
    ),
    One(
        "barrier",
        "Wait for members",
        (("spec", "barrier_timeout_seconds"),),
        "From the first member that is ready; then all go back to the queue.",
        kind=DURATION,
        words="wait {} for members",
    ),
)

QUEUE: Final[tuple[Entry, ...]] = (
    One("start", "Start", (("spec", "start"),), options=STARTS),
    One(
        "priority",
        "Priority",
        (("spec", "priority"),),
        "Higher goes first; an editor may ask for at most 100.",
        kind=NUMBER,
        words="priority {}",
    ),
    Check(
        "preemptible",
        "Preemptible",
        (("spec", "preemptible"),),
        "May be stopped and queued anew for a run of higher priority.",
        "check",
        words="preemptible",
    ),
    One("cluster", "Cluster", (("spec", "cluster"),), words="cluster {}"),
    One(
        "labels",
        "Labels",
        (("metadata", "labels"),),
        "key=value, one on each line, to find runs by.",
        kind=PAIRS,
        words="{} label",
    ),
)

ENVIRONMENT: Final[tuple[Entry, ...]] = (
    One(
        "env",
        "Environment",
        ((*TEMPLATE, "env"),),
        "NAME=value, one on each line. They win over every variable that Astraeus sets.",
        kind=PAIRS,
        words="{} variable",
    ),
    One("working_dir", "Working directory", ((*TEMPLATE, "working_dir"),), "Empty: the image's.", kind=TEXT),
    One(
        "user",
        "User",
        ((*TEMPLATE, "user"),),
        "1000, 1000:1000 or a name. Empty: the image's.",
        kind=TEXT,
        words="user {}",
    ),
    One(
        "registry",
        "Registry credential",
        ((*TEMPLATE, "registry_credential"),),
        "To pull the image with.",
        words="credential {}",
    ),
)


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the form that is closed until it is wanted."""

    key: str
    title: str
    entries: tuple[Entry, ...]


SECTIONS: Final[tuple[Section, ...]] = (
    Section("network", "Network between workers", NETWORK),
    Section("placement", "Placement", PLACEMENT),
    Section("failure", "When something fails", FAILURE),
    Section("probes", "Probes", PROBE_ENTRIES),
    Section("environment", "Environment", ENVIRONMENT),
    Section("queue", "Start, priority and labels", QUEUE),
)
ENTRIES: Final[Mapping[str, Entry]] = {
    entry.name: entry for entry in (*MAIN, *(each for section in SECTIONS for each in section.entries))
}
