"""Secrets and registry credentials of a workspace: admins write them, editors see which there are."""

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from console.api import schema
from console.api.base import WorkspaceView
from console.api.bodies import body_of
from console.api.pages import PAGE_PARAMETERS, page_by_name
from console.api.parameters import check_known
from console.api.store_shapes import (
    MOST_BYTES,
    CredentialAnswer,
    CredentialChange,
    CredentialOrder,
    SecretAnswer,
    SecretOrder,
    SecretValue,
)
from tenancy.models import RegistryCredential, Secret
from tenancy.registries import (
    credential_change,
    credential_create,
    credential_find,
    credential_remove,
    credentials_of,
)
from tenancy.roles import Permission
from tenancy.secrets import secret_change, secret_create, secret_find, secret_remove, secrets_of

LIST: dict[str, Any] = {"parameters": [schema.LIMIT, schema.NAME_CURSOR], "refusals": schema.WRITE}


def _secret_present(secret: Secret) -> dict[str, Any]:
    return {
        "name": secret.name,
        "created_at": secret.created_at,
        "changed_at": secret.changed_at,
        "changed_by": secret.changed_by,
    }


def _credential_present(credential: RegistryCredential) -> dict[str, Any]:
    return {
        "name": credential.name,
        "registry": credential.registry,
        "username": credential.username,
        "created_at": credential.created_at,
        "changed_at": credential.changed_at,
        "changed_by": credential.changed_by,
    }


class Secrets(WorkspaceView):
    @schema.operation("secrets_list", {200: schema.list_of(SecretAnswer)}, **LIST)
    def get(self, request: Request, **_: str) -> Response:
        """The workspace's secrets by name, without their values."""
        workspace = self.workspace(request, Permission.WRITE_RUNS)
        check_known(request, PAGE_PARAMETERS)
        return page_by_name(secrets_of(workspace), request).answer(_secret_present)

    @schema.operation("secret_create", {201: SecretAnswer}, body=SecretOrder, refusals=(*schema.SEND, 409))
    def post(self, request: Request, **_: str) -> Response:
        """Adds a secret; nobody is shown its value again."""
        workspace = self.workspace(request, Permission.MANAGE_WORKSPACE)
        check_known(request)
        order = body_of(request, SecretOrder, most_bytes=MOST_BYTES)
        secret = secret_create(
            workspace=workspace, name=order.name, value=order.value, actor=self.actor(request)
        )
        return Response(_secret_present(secret), status=201)


class OneSecret(WorkspaceView):
    def secret(self, request: Request, need: Permission) -> Secret:
        workspace = self.workspace(request, need)
        check_known(request)
        return secret_find(workspace, self.kwargs["secret"])

    @schema.operation("secret_show", {200: SecretAnswer}, refusals=schema.WRITE)
    def get(self, request: Request, **_: str) -> Response:
        """A secret, without its value."""
        return Response(_secret_present(self.secret(request, Permission.WRITE_RUNS)))

    @schema.operation("secret_change", {200: SecretAnswer}, body=SecretValue, refusals=schema.SEND)
    def patch(self, request: Request, **_: str) -> Response:
        """Gives the secret another value, for attempts that start from now on; running workers keep theirs."""
        secret = self.secret(request, Permission.MANAGE_WORKSPACE)
        secret_change(
            secret=secret,
            value=body_of(request, SecretValue, most_bytes=MOST_BYTES).value,
            actor=self.actor(request),
        )
        return Response(_secret_present(self.secret(request, Permission.MANAGE_WORKSPACE)))

    @schema.operation("secret_remove", {204: None}, refusals=schema.WRITE)
    def delete(self, request: Request, **_: str) -> Response:
        """Removes the secret; running workers keep it, runs that wait and name it go on waiting."""
        secret_remove(secret=self.secret(request, Permission.MANAGE_WORKSPACE), actor=self.actor(request))
        return Response(status=204)


class Credentials(WorkspaceView):
    @schema.operation("registry_credentials_list", {200: schema.list_of(CredentialAnswer)}, **LIST)
    def get(self, request: Request, **_: str) -> Response:
        """The workspace's registry credentials by name, without their passwords."""
        workspace = self.workspace(request, Permission.WRITE_RUNS)
        check_known(request, PAGE_PARAMETERS)
        return page_by_name(credentials_of(workspace), request).answer(_credential_present)

    @schema.operation(
        "registry_credential_create",
        {201: CredentialAnswer},
        body=CredentialOrder,
        refusals=(*schema.SEND, 409),
    )
    def post(self, request: Request, **_: str) -> Response:
        """Adds a registry credential; nobody is shown its password again."""
        workspace = self.workspace(request, Permission.MANAGE_WORKSPACE)
        check_known(request)
        order = body_of(request, CredentialOrder, most_bytes=MOST_BYTES)
        credential = credential_create(workspace=workspace, actor=self.actor(request), **order.model_dump())
        return Response(_credential_present(credential), status=201)


class OneCredential(WorkspaceView):
    def credential(self, request: Request, need: Permission) -> RegistryCredential:
        workspace = self.workspace(request, need)
        check_known(request)
        return credential_find(workspace, self.kwargs["credential"])

    @schema.operation("registry_credential_show", {200: CredentialAnswer}, refusals=schema.WRITE)
    def get(self, request: Request, **_: str) -> Response:
        """A registry credential, without its password."""
        return Response(_credential_present(self.credential(request, Permission.WRITE_RUNS)))

    @schema.operation(
        "registry_credential_change", {200: CredentialAnswer}, body=CredentialChange, refusals=schema.SEND
    )
    def patch(self, request: Request, **_: str) -> Response:
        """Changes what is given; images that are pulled from now on use it."""
        credential = self.credential(request, Permission.MANAGE_WORKSPACE)
        change = body_of(request, CredentialChange, most_bytes=MOST_BYTES)
        credential_change(credential=credential, actor=self.actor(request), **change.model_dump())
        return Response(_credential_present(self.credential(request, Permission.MANAGE_WORKSPACE)))

    @schema.operation("registry_credential_remove", {204: None}, refusals=schema.WRITE)
    def delete(self, request: Request, **_: str) -> Response:
        """Removes the credential; runs that wait and name it go on waiting."""
        credential = self.credential(request, Permission.MANAGE_WORKSPACE)
        credential_remove(credential=credential, actor=self.actor(request))
        return Response(status=204)
