"""Members of a workspace, for its admins and the organization's owners."""

from rest_framework.request import Request
from rest_framework.response import Response

from console.api import schema
from console.api.answers import MemberAnswer
from console.api.base import WorkspaceView
from console.api.bodies import body_of
from console.api.pages import PAGE_PARAMETERS, page_of
from console.api.parameters import check_known
from console.api.requests import MemberChange, MemberOrder
from tenancy.members import member_add, member_change, member_find, member_remove
from tenancy.models import Membership
from tenancy.roles import Permission


def member_present(member: Membership) -> dict[str, str]:
    user = member.user
    return {
        "user": user.get_username(),
        "name": user.get_full_name(),
        "email": user.email,
        "role": member.role,
    }


class Members(WorkspaceView):
    @schema.operation(
        "members_list",
        {200: schema.list_of(MemberAnswer)},
        parameters=[schema.LIMIT, schema.CURSOR],
        refusals=schema.WRITE,
    )
    def get(self, request: Request, **_: str) -> Response:
        """The workspace's members, newest first."""
        workspace = self.workspace(request, Permission.MANAGE_WORKSPACE)
        check_known(request, PAGE_PARAMETERS)
        members = Membership.objects.filter(workspace=workspace).select_related("user")
        return page_of(members, request).answer(member_present)

    @schema.operation("member_add", {201: MemberAnswer}, body=MemberOrder, refusals=(*schema.SEND, 409))
    def post(self, request: Request, **_: str) -> Response:
        """Gives a person of the organization a role in the workspace."""
        workspace = self.workspace(request, Permission.MANAGE_WORKSPACE)
        check_known(request)
        order = body_of(request, MemberOrder)
        member = member_add(workspace=workspace, user=order.user, role=order.role, actor=self.actor(request))
        return Response(member_present(member), status=201)


class OneMember(WorkspaceView):
    def member(self, request: Request) -> Membership:
        workspace = self.workspace(request, Permission.MANAGE_WORKSPACE)
        check_known(request)
        return member_find(workspace, self.kwargs["user"])

    @schema.operation("member_show", {200: MemberAnswer}, refusals=schema.WRITE)
    def get(self, request: Request, **_: str) -> Response:
        """A member."""
        return Response(member_present(self.member(request)))

    @schema.operation("member_change", {200: MemberAnswer}, body=MemberChange, refusals=schema.SEND)
    def patch(self, request: Request, **_: str) -> Response:
        """Gives the member another role; it counts from the next request on, for tokens too."""
        member, change = self.member(request), body_of(request, MemberChange)
        return Response(
            member_present(member_change(member=member, role=change.role, actor=self.actor(request)))
        )

    @schema.operation("member_remove", {204: None}, refusals=schema.WRITE)
    def delete(self, request: Request, **_: str) -> Response:
        """Takes the role away; tokens of this person stop working here with it."""
        member_remove(member=self.member(request), actor=self.actor(request))
        return Response(status=204)
