"""Roles, and what each may do (design: security and operation)."""

from django.db import models


class WorkspaceRole(models.TextChoices):
    VIEWER = "viewer", "viewer"
    EDITOR = "editor", "editor"
    ADMIN = "admin", "admin"


class OrganizationRole(models.TextChoices):
    MEMBER = "member", "member"
    OPERATOR = "operator", "operator"
    OWNER = "owner", "owner"


class Permission(models.TextChoices):
    """What a request wants to do. The table below is the only place that says who may."""

    READ_RUNS = "read_runs", "read the workspace's runs"
    WRITE_RUNS = "write_runs", "submit, stop, restart and delete runs"
    MANAGE_WORKSPACE = "manage_workspace", "manage members, tokens and secrets"
    READ_MACHINES = "read_machines", "read machines"
    OPERATE_MACHINES = "operate_machines", "label, cordon, drain, join and remove machines"
    OWN = "own", "manage clusters, pools, quotas and workspaces"


WORKSPACE_GRANTS: dict[str, frozenset[Permission]] = {
    WorkspaceRole.VIEWER: frozenset({Permission.READ_RUNS, Permission.READ_MACHINES}),
    WorkspaceRole.EDITOR: frozenset({Permission.READ_RUNS, Permission.WRITE_RUNS, Permission.READ_MACHINES}),
    WorkspaceRole.ADMIN: frozenset(
        {
            Permission.READ_RUNS,
            Permission.WRITE_RUNS,
            Permission.MANAGE_WORKSPACE,
            Permission.READ_MACHINES,
        }
    ),
}
ORGANIZATION_GRANTS: dict[str, frozenset[Permission]] = {
    OrganizationRole.MEMBER: frozenset({Permission.READ_MACHINES}),
    OrganizationRole.OPERATOR: frozenset(
        {Permission.READ_RUNS, Permission.READ_MACHINES, Permission.OPERATE_MACHINES}
    ),
    OrganizationRole.OWNER: frozenset(Permission),
}
EDITOR_PRIORITY_LIMIT = 100
"""The highest priority that an editor may ask for."""
