"""`manage.py bootstrap`: what a new console needs before anybody can sign in: an organization and its first owner."""

import secrets
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from machines.models import Cluster, Pool, WorkspacePool
from tenancy.models import Membership, Organization, OrganizationMembership, User, Workspace
from tenancy.roles import OrganizationRole, WorkspaceRole
from tenancy.stores import name_flaws


class Command(BaseCommand):
    help = "Makes an organization with a workspace, a cluster with a pool, and its owner, whose password it prints."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("organization", help="its short name, which stands in addresses: acme")
        parser.add_argument("owner", help="the name under which the owner signs in")
        parser.add_argument("--email", default="", help="of the owner")
        parser.add_argument("--workspace", default="main", help="the first workspace (%(default)s)")
        parser.add_argument("--cluster", default="main", help="the first cluster (%(default)s)")
        parser.add_argument("--pool", default="default", help="the cluster's first pool (%(default)s)")

    @transaction.atomic
    def handle(
        self,
        *,
        organization: str,
        owner: str,
        email: str,
        workspace: str,
        cluster: str,
        pool: str,
        **_options: Any,
    ) -> None:
        _refuse_bad(organization, workspace, cluster, pool)
        _refuse_taken(organization, owner)
        made = Organization.objects.create(slug=organization, name=organization)
        space = Workspace.objects.create(
            organization=made, slug=workspace, name=workspace, default_cluster=cluster
        )
        machines = Cluster.objects.create(organization=made, slug=cluster, name=cluster)
        first = Pool.objects.create(cluster=machines, slug=pool, name=pool)
        WorkspacePool.objects.create(workspace=space, pool=first)
        password = _owner_create(made, space, owner, email)
        self.stdout.write(f"{settings.PUBLIC_URL}: sign in as {owner} with the password {password}")


def _refuse_bad(*names: str) -> None:
    for name in names:
        for flaw in name_flaws(name):
            raise CommandError(f"{name}: {flaw.message}")


def _refuse_taken(organization: str, owner: str) -> None:
    if Organization.objects.filter(slug=organization).exists():
        raise CommandError(f"There is an organization {organization} already.")
    if User.objects.filter(username=owner).exists():
        raise CommandError(f"There is somebody called {owner} already.")


def _owner_create(organization: Organization, workspace: Workspace, name: str, email: str) -> str:
    """Returns the owner's password."""
    password = secrets.token_urlsafe(12)
    owner = User.objects.create_user(username=name, email=email, password=password)
    OrganizationMembership.objects.create(organization=organization, user=owner, role=OrganizationRole.OWNER)
    Membership.objects.create(workspace=workspace, user=owner, role=WorkspaceRole.ADMIN)
    return password
