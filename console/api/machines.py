"""Machines of a cluster: what there is, and what operators do with it."""

from datetime import timedelta

from django.db.models import QuerySet
from rest_framework.request import Request
from rest_framework.response import Response

from common.errors import NotFound
from console.api import schema
from console.api.answers import ForesightAnswer, MachineAnswer
from console.api.base import ClusterView
from console.api.bodies import body_of
from console.api.machine_answers import machines_present
from console.api.machine_changes import machine_change, machine_foresee
from console.api.pages import PAGE_PARAMETERS, list_answer, page_by_name
from console.api.parameters import check_known, choices, flag
from console.api.requests import CordonOrder, DrainOrder, HealthOrder, MachineChange
from console.pages.machine_facts import machines_for_display
from machines import operations, overrides, services
from machines.models import Machine
from machines.selectors import STATES, machines_labelled
from machines.states import MachineState
from runs.lemons import failures_forget
from tenancy.roles import Permission

STATE_NAMES = {state.label: state for state in MachineState}
LIST = [
    schema.several("state", STATE_NAMES, "Only machines in one of these states.", joined=True),
    schema.several("label", None, "Only machines with this label, `key=value`."),
    schema.parameter("pool", {"type": "string"}, "Only machines of this pool."),
    schema.parameter("q", {"type": "string"}, "Only machines whose name contains this."),
    schema.LIMIT,
    schema.NAME_CURSOR,
]


SUBJECT = schema.parameter(
    "subject", {"type": "string"}, "`machine` (also when left out), `gpu <UUID>` or `port <device>:<port>`."
)


class MachineView(ClusterView):
    """Below `…/machines/<machine>`."""

    def machine(self, request: Request, need: Permission) -> Machine:
        cluster = self.cluster(request, need)
        found = machines_for_display(
            Machine.objects.filter(cluster=cluster, name=self.kwargs["machine"])
        ).first()
        if found is None:
            raise NotFound(f"There is no machine `{self.kwargs['machine'][:63]}` in {cluster.slug}.")
        return found

    def shown(self, request: Request, machine: Machine) -> Response:
        """The machine as it is now."""
        fresh = machines_for_display(Machine.objects.filter(id=machine.id)).first()
        if fresh is None:
            raise NotFound(f"{machine.name} was removed meanwhile.")
        return self.present(request, fresh)

    def present(self, request: Request, machine: Machine) -> Response:
        [shown] = machines_present([machine], self.actor(request))
        return Response(shown)


class Machines(ClusterView):
    @schema.operation("machines_list", {200: schema.list_of(MachineAnswer)}, parameters=LIST)
    def get(self, request: Request, **_: str) -> Response:
        """The cluster's machines by name."""
        cluster = self.cluster(request, Permission.READ_MACHINES)
        check_known(request, ("state", "label", "pool", "q", *PAGE_PARAMETERS))
        machines = _filtered(Machine.objects.filter(cluster=cluster), request)
        page = page_by_name(machines_for_display(machines), request)
        return list_answer(machines_present(page.rows, self.actor(request)), page.next)


def _filtered(machines: QuerySet[Machine], request: Request) -> QuerySet[Machine]:
    params = request.query_params
    if states := choices(request, "state", STATE_NAMES):
        asked = [STATES[STATE_NAMES[name]] for name in states]
        condition = asked[0]
        for each in asked[1:]:
            condition |= each
        machines = machines.filter(condition)
    for label in params.getlist("label"):
        key, _, value = label.partition("=")
        machines = machines_labelled(machines, key, value)
    if pool := params.get("pool"):
        machines = machines.filter(pool__slug=pool)
    if text := params.get("q"):
        machines = machines.filter(name__icontains=text)
    return machines


class OneMachine(MachineView):
    @schema.operation("machine_show", {200: MachineAnswer})
    def get(self, request: Request, **_: str) -> Response:
        """A machine: state, GPUs with health and holder, RDMA ports, where it is."""
        check_known(request)
        return self.present(request, self.machine(request, Permission.READ_MACHINES))

    @schema.operation(
        "machine_change",
        {200: {"anyOf": [schema.reference(MachineAnswer), schema.reference(ForesightAnswer)]}},
        body=MachineChange,
        parameters=[schema.DRY_RUN],
        refusals=(*schema.SEND, 409),
    )
    def patch(self, request: Request, **_: str) -> Response:
        """Changes labels, pool or name.

        A label that a person sets wins over what was found; null takes it back. With `dry_run` nothing is changed,
        and the answer tells what placement would make of it.
        """
        machine = self.machine(request, Permission.OPERATE_MACHINES)
        check_known(request, ("dry_run",))
        dry_run, change = flag(request, "dry_run"), body_of(request, MachineChange)
        if dry_run:
            return Response(machine_foresee(machine, change, self.actor(request)))
        machine_change(machine, change, self.actor(request))
        return self.shown(request, machine)

    @schema.operation("machine_remove", {204: None}, refusals=(*schema.WRITE, 409))
    def delete(self, request: Request, **_: str) -> Response:
        """Takes the machine out of the cluster, with its credential. Refused while something may run there."""
        check_known(request)
        machine = self.machine(request, Permission.OPERATE_MACHINES)
        operations.machine_remove(machine=machine, actor=self.actor(request))
        return Response(status=204)


class MachineCordon(MachineView):
    @schema.operation(
        "machine_cordon", {200: MachineAnswer}, body=CordonOrder, body_required=False, refusals=schema.SEND
    )
    def post(self, request: Request, **_: str) -> Response:
        """Keeps new work off the machine; what runs there goes on."""
        check_known(request)
        machine = self.machine(request, Permission.OPERATE_MACHINES)
        order = body_of(request, CordonOrder, optional=True)
        services.machine_cordon(machine=machine, actor=self.actor(request), reason=order.reason)
        return self.shown(request, machine)


class MachineUncordon(MachineView):
    @schema.operation("machine_uncordon", {200: MachineAnswer}, refusals=schema.WRITE)
    def post(self, request: Request, **_: str) -> Response:
        """Lets new work land on the machine again; also ends a drain."""
        check_known(request)
        machine = self.machine(request, Permission.OPERATE_MACHINES)
        services.machine_uncordon(machine=machine, actor=self.actor(request))
        return self.shown(request, machine)


class MachineDrain(MachineView):
    @schema.operation(
        "machine_drain", {200: MachineAnswer}, body=DrainOrder, body_required=False, refusals=schema.SEND
    )
    def post(self, request: Request, **_: str) -> Response:
        """Keeps new work off the machine and sends its runs back to the queue, once their time there is over."""
        check_known(request)
        machine = self.machine(request, Permission.OPERATE_MACHINES)
        order = body_of(request, DrainOrder, optional=True)
        within = timedelta(seconds=order.within_seconds)
        operations.machine_drain(
            machine=machine, actor=self.actor(request), within=within, reason=order.reason
        )
        return self.shown(request, machine)


class MachineHealth(MachineView):
    @schema.operation("machine_health_set", {200: MachineAnswer}, body=HealthOrder, refusals=schema.SEND)
    def put(self, request: Request, **_: str) -> Response:
        """Says what the health of a GPU, a port or the whole machine is, for a while, whatever its agent says."""
        check_known(request)
        machine = self.machine(request, Permission.OPERATE_MACHINES)
        order = body_of(request, HealthOrder)
        overrides.health_override(
            machine=machine,
            subject=order.subject,
            health=order.health,
            reason=order.reason,
            lasts=timedelta(seconds=order.lasts_seconds),
            actor=self.actor(request),
        )
        return self.shown(request, machine)

    @schema.operation("machine_health_end", {200: MachineAnswer}, parameters=[SUBJECT], refusals=schema.WRITE)
    def delete(self, request: Request, **_: str) -> Response:
        """What the machine's agent says counts again. Idempotent."""
        machine = self.machine(request, Permission.OPERATE_MACHINES)
        check_known(request, ("subject",))
        subject = request.query_params.get("subject", overrides.MACHINE)
        overrides.health_override_end(machine=machine, subject=subject, actor=self.actor(request))
        return self.shown(request, machine)


class MachineFailures(MachineView):
    @schema.operation("machine_failures_forget", {200: MachineAnswer}, refusals=schema.WRITE)
    def delete(self, request: Request, **_: str) -> Response:
        """Forgets the failures of runs there, once the machine was mended. Idempotent."""
        check_known(request)
        machine = self.machine(request, Permission.OPERATE_MACHINES)
        failures_forget(machine=machine, actor=self.actor(request))
        return self.shown(request, machine)


class MachineCredentials(MachineView):
    @schema.operation("machine_sign_out", {204: None}, refusals=schema.WRITE)
    def delete(self, request: Request, **_: str) -> Response:
        """Revokes the machine's credential: its agent is refused from now on.

        What runs there goes on. The machine joins again under its name with a new join token.
        """
        check_known(request)
        machine = self.machine(request, Permission.OPERATE_MACHINES)
        operations.machine_sign_out(machine=machine, actor=self.actor(request))
        return Response(status=204)
