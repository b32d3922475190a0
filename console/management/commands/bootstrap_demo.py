"""`manage.py bootstrap_demo --json`: an organization, a workspace, a cluster, a person and join tokens to try with.

Idempotent: called again it keeps what is there, and makes new tokens and a new password.
"""

import json
import secrets
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core import signing
from django.core.management.base import BaseCommand
from django.db import transaction

from console.pages.signin import DEMO_LOGIN_SALT
from machines.models import Cluster, Pool, WorkspacePool
from machines.services import join_token_create
from tenancy.models import Membership, Organization, OrganizationMembership, User, Workspace
from tenancy.roles import OrganizationRole, WorkspaceRole
from tenancy.services import token_create


class Command(BaseCommand):
    help = "Makes an organization, a workspace, a cluster, a person with a token, and join tokens."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print one JSON object")
        parser.add_argument("--machines", type=int, default=2, help="how many join tokens to make")

    @transaction.atomic
    def handle(self, *, machines: int, **options: Any) -> None:
        organization, _ = Organization.objects.get_or_create(slug="acme", defaults={"name": "Acme"})
        workspace, _ = Workspace.objects.get_or_create(
            organization=organization, slug="vision", defaults={"name": "Vision"}
        )
        pool = _pool(organization, workspace)
        user, password = _person(organization, workspace)
        token = token_create(
            user=user, organization=organization, workspace=workspace, role=WorkspaceRole.EDITOR, name="demo"
        )
        joins = [join_token_create(pool=pool, by="demo").value for _ in range(machines)]
        login = signing.TimestampSigner(salt=DEMO_LOGIN_SALT).sign(str(user.id))
        found = {
            "url": settings.PUBLIC_URL,
            "organization": organization.slug,
            "workspace": workspace.slug,
            "cluster": pool.cluster.slug,
            "user": user.username,
            "password": password,
            "token": token.value,
            "join_tokens": joins,
            "login_url": f"{settings.PUBLIC_URL}/demo-login/{login}",
        }
        lines = json.dumps(found) if options["json"] else "\n".join(f"{k}: {v}" for k, v in found.items())
        self.stdout.write(lines)


def _pool(organization: Organization, workspace: Workspace) -> Pool:
    cluster, _ = Cluster.objects.get_or_create(
        organization=organization, slug=workspace.default_cluster, defaults={"name": "Main"}
    )
    pool, _ = Pool.objects.get_or_create(cluster=cluster, slug="default", defaults={"name": "Default"})
    WorkspacePool.objects.get_or_create(workspace=workspace, pool=pool)
    return pool


def _person(organization: Organization, workspace: Workspace) -> tuple[User, str]:
    password = secrets.token_urlsafe(12)
    user, _ = User.objects.get_or_create(username="demo", defaults={"email": "demo@example.com"})
    user.set_password(password)
    user.save(update_fields=["password"])
    OrganizationMembership.objects.update_or_create(
        organization=organization, user=user, defaults={"role": OrganizationRole.OWNER}
    )
    Membership.objects.update_or_create(
        workspace=workspace, user=user, defaults={"role": WorkspaceRole.ADMIN}
    )
    return user, password
