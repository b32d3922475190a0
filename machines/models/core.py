"""Clusters, pools, machines with their GPUs and ports, drives, and who may join."""

from django.db import models
from django.db.models import Q

from machines.states import DriveKind, Health, LinkLayer, MachineState, Reach, Runtime
from tenancy.models import Organization, Workspace
from wire.mesh import DEFAULT_RANGE


class Cluster(models.Model):
    """The unit of placement: one pass at a time, numbered."""

    organization = models.ForeignKey(Organization, models.PROTECT, related_name="clusters")
    slug = models.SlugField(max_length=40)
    name = models.CharField(max_length=100)
    pass_no = models.BigIntegerField(default=0)
    passed_at = models.DateTimeField(null=True)
    mesh_range = models.CharField(max_length=18, default=DEFAULT_RANGE)
    """From which every machine gets a subnet (machines/mesh.py)."""

    class Meta:
        constraints = (models.UniqueConstraint("organization", "slug", name="cluster_slug_unique"),)

    def __str__(self) -> str:
        return self.slug


class Pool(models.Model):
    cluster = models.ForeignKey(Cluster, models.CASCADE, related_name="pools")
    slug = models.SlugField(max_length=40)
    name = models.CharField(max_length=100)

    class Meta:
        constraints = (models.UniqueConstraint("cluster", "slug", name="pool_slug_unique"),)

    def __str__(self) -> str:
        return self.slug


class WorkspacePool(models.Model):
    """A workspace may use a pool: up to a cap, with a share that is guaranteed to it."""

    workspace = models.ForeignKey(Workspace, models.CASCADE, related_name="pool_access")
    pool = models.ForeignKey(Pool, models.CASCADE, related_name="workspace_access")
    gpu_cap = models.PositiveIntegerField(null=True)
    """None: no cap."""
    guaranteed_gpus = models.PositiveIntegerField(default=0)

    class Meta:
        constraints = (models.UniqueConstraint("workspace", "pool", name="one_access_per_pool"),)

    def __str__(self) -> str:
        return f"{self.workspace} on {self.pool}"


class Fabric(models.Model):
    """Ports that share a subnet manager. `key` is what was found; `name` is what people call it."""

    cluster = models.ForeignKey(Cluster, models.CASCADE, related_name="fabrics")
    key = models.CharField(max_length=80)
    name = models.CharField(max_length=63)
    guessed = models.BooleanField(default=False)
    former_keys = models.JSONField(default=dict)
    """Keys that it had before a hand-over of its subnet manager → until when they count (machines/fabrics.py)."""
    storage = models.BooleanField(default=False)
    """Set by an administrator: out of placement."""

    class Meta:
        constraints = (
            models.UniqueConstraint("cluster", "key", name="fabric_key_unique"),
            models.UniqueConstraint("cluster", "name", name="fabric_name_unique"),
        )

    def __str__(self) -> str:
        return self.name


class MachineManager(models.Manager["Machine"]):
    """Those that are there. A removed machine is only reached from what once ran on it."""

    def get_queryset(self) -> models.QuerySet["Machine"]:
        return super().get_queryset().filter(removed_at=None)


class Machine(models.Model):
    cluster = models.ForeignKey(Cluster, models.PROTECT, related_name="machines")
    pool = models.ForeignKey(Pool, models.SET_NULL, null=True, related_name="machines")
    """None: of a removed machine, whose pool was removed, too."""
    name = models.CharField(max_length=63)
    version = models.BigIntegerField(default=0)
    """Rises with every change that placement can see; an apply that read an older one does nothing."""
    created_at = models.DateTimeField(auto_now_add=True)

    # What the agent says of itself.
    address = models.CharField(max_length=64, blank=True)
    runtime = models.CharField(max_length=12, choices=Runtime.choices)
    agent_version = models.CharField(max_length=40, blank=True)
    simulated = models.BooleanField(default=False)
    boot_id = models.CharField(max_length=64, blank=True)
    kernel = models.CharField(max_length=120, blank=True)
    cpu_cores = models.PositiveIntegerField(default=0)
    memory_bytes = models.BigIntegerField(default=0)
    limits = models.JSONField(default=list)
    """What the runtime can't enforce here, a sentence each."""
    busy_ports = models.JSONField(default=list)
    hardware = models.JSONField(default=dict)
    """`host` and `split_gpus` of the inventory, as they came: for its page only."""
    gpus_as_of = models.DateTimeField(null=True)
    """Since then nothing new is known of its GPUs; None: all is current."""
    health = models.CharField(max_length=8, choices=Health.choices, default=Health.HEALTHY)
    """Of the machine as a whole; GPUs and ports have their own. What counts: see machines/overrides.py."""
    evidence = models.CharField(max_length=300, blank=True)
    reported_health = models.CharField(max_length=8, choices=Health.choices, default=Health.HEALTHY)
    reported_evidence = models.CharField(max_length=300, blank=True)
    checks = models.JSONField(default=list)
    """What `astraeus-agent check` says there, a line each."""
    clock_skew = models.FloatField(default=0)
    """Seconds that its clock is behind the console's, less than 0 when ahead; to the second."""

    # The mesh (machines/mesh.py).
    mesh_key = models.CharField(max_length=44, blank=True)
    """Its public key; the private one has never left the machine."""
    mesh_endpoint = models.CharField(max_length=64, blank=True)
    mesh_number = models.PositiveIntegerField(null=True)
    """Which subnet of the cluster's range is its own; None: none."""
    mesh_flaw = models.CharField(max_length=300, blank=True)
    """Why it is not on the mesh although its agent could be, a sentence."""

    # The channel.
    instance = models.CharField(max_length=64, blank=True)
    """Of the agent that counts: the last one that began to speak. Those before it: `ReplacedAgent`."""
    sequence = models.BigIntegerField(default=-1)
    observed_digest = models.CharField(max_length=64, blank=True)
    desired_revision = models.BigIntegerField(default=1)
    applied_revision = models.BigIntegerField(default=0)
    two_agents_at = models.DateTimeField(null=True)
    """When two living agents were last seen on its credential: until that is over nothing is placed or started."""

    # What people and the sweeps said.
    last_seen_at = models.DateTimeField(null=True)
    unreachable_at = models.DateTimeField(null=True)
    quarantined_at = models.DateTimeField(null=True)
    cordoned_at = models.DateTimeField(null=True)
    cordoned_by = models.CharField(max_length=200, blank=True)
    cordon_reason = models.CharField(max_length=200, blank=True)
    draining_at = models.DateTimeField(null=True)
    drain_until = models.DateTimeField(null=True)
    """From then on, what still runs on a draining machine goes back to the queue."""
    removed_at = models.DateTimeField(null=True)
    """The row stays: the history of what ran there names it. Its name may be taken by another machine."""

    objects = MachineManager()

    class Meta:
        ordering = ("name",)
        constraints = (
            models.UniqueConstraint(
                "cluster", "name", name="machine_name_unique", condition=Q(removed_at=None)
            ),
            models.CheckConstraint(
                condition=Q(pool__isnull=False) | Q(removed_at__isnull=False), name="machine_has_a_pool"
            ),
            models.CheckConstraint(condition=Q(health__in=Health.values), name="machine_health_known"),
            models.UniqueConstraint(
                "cluster", "mesh_number", name="mesh_number_unique", condition=Q(mesh_number__isnull=False)
            ),
            models.UniqueConstraint("cluster", "mesh_key", name="mesh_key_unique", condition=~Q(mesh_key="")),
        )
        indexes = (models.Index("boot_id", name="machine_of_host"),)

    def __str__(self) -> str:
        return self.name

    @property
    def on_mesh(self) -> bool:
        """One whose agent reports no key any more has lost what a mesh needs, and keeps its number."""
        return self.mesh_number is not None and self.mesh_key != "" and not self.mesh_flaw

    @property
    def state(self) -> MachineState:
        if self.quarantined_at:
            return MachineState.QUARANTINED
        if self.unreachable_at or self.last_seen_at is None:
            return MachineState.UNREACHABLE
        if self.two_agents_at:
            return MachineState.CONTESTED
        if self.draining_at:
            return MachineState.DRAINING
        return MachineState.CORDONED if self.cordoned_at else MachineState.READY


class Gpu(models.Model):
    machine = models.ForeignKey(Machine, models.CASCADE, related_name="gpus")
    uuid = models.CharField(max_length=96)
    index = models.PositiveSmallIntegerField()
    product = models.CharField(max_length=128)
    model = models.CharField(max_length=60)
    """Short name: "H100" for "NVIDIA H100 80GB HBM3"."""
    memory_bytes = models.BigIntegerField()
    numa_node = models.SmallIntegerField(null=True)
    nvlink_domain = models.CharField(max_length=80, blank=True)
    health = models.CharField(max_length=8, choices=Health.choices, default=Health.HEALTHY)
    """What counts: as its agent judges, unless an administrator says otherwise (machines/overrides.py)."""
    evidence = models.CharField(max_length=300, blank=True)
    reported_health = models.CharField(max_length=8, choices=Health.choices, default=Health.HEALTHY)
    reported_evidence = models.CharField(max_length=300, blank=True)
    pci_bus = models.CharField(max_length=32, blank=True)
    present = models.BooleanField(default=True)
    """False: the agent no longer finds it. Its row stays while something holds it."""

    class Meta:
        ordering = ("machine_id", "index")
        constraints = (
            models.UniqueConstraint("machine", "uuid", name="gpu_uuid_unique"),
            models.CheckConstraint(condition=Q(health__in=Health.values), name="gpu_health_known"),
        )
        indexes = (models.Index("model", "machine", name="gpu_model_there", condition=Q(present=True)),)

    def __str__(self) -> str:
        return f"{self.machine.name} GPU {self.index}"


class RdmaPort(models.Model):
    machine = models.ForeignKey(Machine, models.CASCADE, related_name="rdma_ports")
    device = models.CharField(max_length=64)
    port = models.PositiveSmallIntegerField()
    link_layer = models.CharField(max_length=10, choices=LinkLayer.choices)
    state = models.CharField(max_length=32)
    rate_gbps = models.FloatField()
    fabric = models.ForeignKey(Fabric, models.PROTECT, null=True, related_name="ports")
    netdev = models.CharField(max_length=32, blank=True)
    physical_state = models.CharField(max_length=32, blank=True)
    guid = models.CharField(max_length=40, blank=True)
    lid = models.BigIntegerField(default=0)
    sm_lid = models.BigIntegerField(default=0)
    gids = models.JSONField(default=list)
    numa_node = models.SmallIntegerField(null=True)
    health = models.CharField(max_length=8, choices=Health.choices, default=Health.HEALTHY)
    """What counts; a faulty port is no way for traffic, though its link be up."""
    evidence = models.CharField(max_length=300, blank=True)
    reported_health = models.CharField(max_length=8, choices=Health.choices, default=Health.HEALTHY)
    reported_evidence = models.CharField(max_length=300, blank=True)

    # Which fabric it says it is in; machines/fabrics.py makes `fabric` of it.
    subnet_prefix = models.CharField(max_length=40, blank=True)
    reported_key = models.CharField(max_length=80, blank=True)
    reported_guess = models.BooleanField(default=False)
    reported_at = models.DateTimeField(null=True)
    """Since when it says so."""

    class Meta:
        ordering = ("machine_id", "device", "port")
        constraints = (
            models.UniqueConstraint("machine", "device", "port", name="rdma_port_unique"),
            models.CheckConstraint(condition=Q(link_layer__in=LinkLayer.values), name="link_layer_known"),
            models.CheckConstraint(condition=Q(health__in=Health.values), name="port_health_known"),
        )

    def __str__(self) -> str:
        return f"{self.device}:{self.port}"

    @property
    def up(self) -> bool:
        return self.state == "ACTIVE"


class MachineLabel(models.Model):
    machine = models.ForeignKey(Machine, models.CASCADE, related_name="labels")
    key = models.CharField(max_length=253)
    value = models.CharField(max_length=63, blank=True)
    found = models.BooleanField(default=False)
    """Reported by the (simulated) machine itself; a label set by a person wins and stays."""
    set_by = models.CharField(max_length=200, blank=True)
    set_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ("key",)
        constraints = (models.UniqueConstraint("machine", "key", "found", name="machine_label_unique"),)

    def __str__(self) -> str:
        return f"{self.key}={self.value}"


class DataVolume(models.Model):
    """A drive: a directory of machines that runs may mount. Only owners say where it lies."""

    cluster = models.ForeignKey(Cluster, models.CASCADE, related_name="drives")
    name = models.CharField(max_length=63)
    kind = models.CharField(max_length=7, choices=DriveKind.choices)
    path = models.CharField(max_length=4095)
    """Absolute, the same on every machine that has it; the agents' own configuration must allow it."""
    pool = models.ForeignKey(Pool, models.CASCADE, null=True, related_name="drives")
    """Of a shared drive: the pool whose machines have it; None: all of the cluster."""
    machine = models.ForeignKey(Machine, models.CASCADE, null=True, related_name="drives")
    """The one that has it; None for a shared drive."""
    reach = models.CharField(max_length=7, choices=Reach.choices, default=Reach.LOCAL)
    """Of a machine's drive: whether other machines may mount it over the network."""
    created_at = models.DateTimeField(auto_now_add=True)
    changed_at = models.DateTimeField()
    changed_by = models.CharField(max_length=200)

    class Meta:
        ordering = ("name",)
        constraints = (
            models.UniqueConstraint("cluster", "name", name="drive_name_unique"),
            models.CheckConstraint(condition=Q(reach__in=Reach.values), name="drive_reach_known"),
            models.CheckConstraint(
                condition=Q(kind=DriveKind.SHARED, machine=None, reach=Reach.LOCAL)
                | Q(kind=DriveKind.MACHINE, machine__isnull=False, pool=None),
                name="drive_has_one_place",
            ),
        )

    def __str__(self) -> str:
        return self.name


class DataVolumeAccess(models.Model):
    """A workspace may use a drive."""

    volume = models.ForeignKey(DataVolume, models.CASCADE, related_name="access")
    workspace = models.ForeignKey(Workspace, models.CASCADE, related_name="drive_access")
    read_only = models.BooleanField(default=True)

    class Meta:
        constraints = (models.UniqueConstraint("volume", "workspace", name="one_access_per_drive"),)

    def __str__(self) -> str:
        return f"{self.workspace} on {self.volume}"


class MachineChange(models.Model):
    """Placement sees something else of a machine since this transaction: written by database triggers alone.

    Whatever a code path forgets, and whatever changes rows in bulk, is still noted. Read by
    runs/scheduling/snapshot.py; rows are removed after a few minutes. No foreign keys: the machine may be gone, and
    a check of the cluster's row with every change would wait for whoever has locked it.
    """

    cluster_id = models.BigIntegerField()
    machine_id = models.BigIntegerField(null=True)
    """None: the cluster's fabrics."""
    usage = models.BooleanField(db_default=False)
    """No more of it is different than its state and what runs hold of it: little needs to be read again."""
    xid = models.BigIntegerField()
    """The transaction (pg_current_xact_id), which may have committed much later than it wrote."""
    at = models.DateTimeField()
    """When that transaction began."""

    class Meta:
        indexes = (
            models.Index("cluster_id", "xid", name="machine_change_since"),
            models.Index("at", name="machine_change_age"),
        )

    def __str__(self) -> str:
        return f"{self.cluster_id} {self.machine_id} in {self.xid}"


class MachineCredential(models.Model):
    """What an agent signs in with. Good for its own machine only; only its SHA-256 is kept."""

    machine = models.ForeignKey(Machine, models.CASCADE, related_name="credentials")
    prefix = models.CharField(max_length=12)
    digest = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)
    revoked_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.machine} {self.prefix}…"


class JoinToken(models.Model):
    """Good for one machine and one hour."""

    pool = models.ForeignKey(Pool, models.CASCADE, related_name="join_tokens")
    prefix = models.CharField(max_length=12)
    digest = models.CharField(max_length=64, unique=True)
    created_by = models.CharField(max_length=200)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)
    machine = models.ForeignKey(Machine, models.SET_NULL, null=True, related_name="+")

    def __str__(self) -> str:
        return f"{self.pool} {self.prefix}…"
