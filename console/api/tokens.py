"""API tokens of a workspace, and those for the organization's machines."""

from typing import Any

from django.db.models import QuerySet
from rest_framework.request import Request
from rest_framework.response import Response

from common.errors import NotFound
from common.secrets import NewSecret
from console.api import schema
from console.api.answers import NewToken, TokenAnswer
from console.api.base import OrganizationView, WorkspaceView
from console.api.bodies import body_of
from console.api.pages import PAGE_PARAMETERS, page_of
from console.api.parameters import check_known
from console.api.requests import OrganizationTokenOrder, TokenOrder
from tenancy.access import Actor, organization_grants
from tenancy.models import ApiToken, Organization
from tenancy.roles import Permission
from tenancy.tokens import token_issue, token_revoke

LIST: dict[str, Any] = {"parameters": [schema.LIMIT, schema.CURSOR], "refusals": schema.WRITE}


def token_present(token: ApiToken) -> dict[str, Any]:
    return {
        "id": token.id,
        "name": token.name,
        "role": token.role,
        "prefix": token.prefix,
        "user": token.user.get_username(),
        "created_at": token.created_at,
        "expires_at": token.expires_at,
        "last_used_at": token.last_used_at,
        "revoked_at": token.revoked_at,
    }


def issued(made: tuple[ApiToken, NewSecret]) -> Response:
    """The only answer that has the secret."""
    token, secret = made
    return Response({**token_present(token), "secret": secret.value}, status=201)


def token_of(tokens: QuerySet[ApiToken], number: int) -> ApiToken:
    token = tokens.filter(id=number).first()
    if token is None:
        raise NotFound(f"There is no token {number} here.")
    return token


class Tokens(WorkspaceView):
    @schema.operation("tokens_list", {200: schema.list_of(TokenAnswer)}, **LIST)
    def get(self, request: Request, **_: str) -> Response:
        """The workspace's tokens, newest first; revoked ones too."""
        workspace = self.workspace(request, Permission.MANAGE_WORKSPACE)
        check_known(request, PAGE_PARAMETERS)
        return page_of(ApiToken.objects.filter(workspace=workspace).select_related("user"), request).answer(
            token_present
        )

    @schema.operation("token_create", {201: NewToken}, body=TokenOrder, refusals=schema.SEND)
    def post(self, request: Request, **_: str) -> Response:
        """Makes a token; its secret is in this answer and nowhere else."""
        workspace = self.workspace(request, Permission.MANAGE_WORKSPACE)
        check_known(request)
        order = body_of(request, TokenOrder)
        return issued(
            token_issue(
                actor=self.actor(request),
                organization=workspace.organization,
                workspace=workspace,
                **order.model_dump(),
            )
        )


class OneToken(WorkspaceView):
    def token(self, request: Request) -> ApiToken:
        workspace = self.workspace(request, Permission.MANAGE_WORKSPACE)
        check_known(request)
        tokens = ApiToken.objects.filter(workspace=workspace).select_related(
            "user", "organization", "workspace"
        )
        return token_of(tokens, self.kwargs["token"])

    @schema.operation("token_show", {200: TokenAnswer}, refusals=schema.WRITE)
    def get(self, request: Request, **_: Any) -> Response:
        """A token, without its secret."""
        return Response(token_present(self.token(request)))

    @schema.operation("token_revoke", {200: TokenAnswer}, refusals=schema.WRITE)
    def delete(self, request: Request, **_: Any) -> Response:
        """Revokes the token at once; it stays in the list. Idempotent."""
        token = self.token(request)
        token_revoke(token=token, actor=self.actor(request))
        return Response(token_present(self.token(request)))


class OrganizationTokens(OrganizationView):
    @schema.operation("organization_tokens_list", {200: schema.list_of(TokenAnswer)}, **LIST)
    def get(self, request: Request, **_: str) -> Response:
        """Tokens for the organization's machines, newest first: an owner sees all, an operator their own."""
        organization = self.organization(request, Permission.OPERATE_MACHINES)
        check_known(request, PAGE_PARAMETERS)
        return page_of(_visible(organization, self.actor(request)), request).answer(token_present)

    @schema.operation(
        "organization_token_create", {201: NewToken}, body=OrganizationTokenOrder, refusals=schema.SEND
    )
    def post(self, request: Request, **_: str) -> Response:
        """Makes a token for the organization's machines; its secret is in this answer and nowhere else."""
        organization = self.organization(request, Permission.OPERATE_MACHINES)
        check_known(request)
        order = body_of(request, OrganizationTokenOrder)
        return issued(
            token_issue(
                actor=self.actor(request), organization=organization, workspace=None, **order.model_dump()
            )
        )


class OneOrganizationToken(OrganizationView):
    def token(self, request: Request) -> ApiToken:
        organization = self.organization(request, Permission.OPERATE_MACHINES)
        check_known(request)
        return token_of(_visible(organization, self.actor(request)), self.kwargs["token"])

    @schema.operation("organization_token_show", {200: TokenAnswer}, refusals=schema.WRITE)
    def get(self, request: Request, **_: Any) -> Response:
        """A token, without its secret."""
        return Response(token_present(self.token(request)))

    @schema.operation("organization_token_revoke", {200: TokenAnswer}, refusals=schema.WRITE)
    def delete(self, request: Request, **_: Any) -> Response:
        """Revokes the token at once; it stays in the list. Idempotent."""
        token_revoke(token=self.token(request), actor=self.actor(request))
        return Response(token_present(self.token(request)))


def _visible(organization: Organization, actor: Actor) -> QuerySet[ApiToken]:
    tokens = ApiToken.objects.filter(organization=organization, workspace=None)
    if Permission.OWN not in organization_grants(actor, organization):
        tokens = tokens.filter(user=actor.user)
    return tokens.select_related("user", "organization", "workspace")
