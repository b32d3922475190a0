"""Who there is and who may do what."""

from django.contrib.auth.models import AbstractUser
from django.db import models
from django.utils import timezone

from tenancy.roles import OrganizationRole, WorkspaceRole


class User(AbstractUser):
    """A person who signs in."""


class Organization(models.Model):
    slug = models.SlugField(max_length=40, unique=True)
    name = models.CharField(max_length=100)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.slug


class OrganizationMembership(models.Model):
    organization = models.ForeignKey(Organization, models.CASCADE, related_name="memberships")
    user = models.ForeignKey(User, models.CASCADE, related_name="organization_memberships")
    role = models.CharField(max_length=10, choices=OrganizationRole.choices, default=OrganizationRole.MEMBER)

    class Meta:
        constraints = (
            models.UniqueConstraint("organization", "user", name="one_role_per_organization"),
            models.CheckConstraint(
                condition=models.Q(role__in=OrganizationRole.values), name="organization_role_known"
            ),
        )

    def __str__(self) -> str:
        return f"{self.user} {self.role} of {self.organization}"


class Workspace(models.Model):
    organization = models.ForeignKey(Organization, models.CASCADE, related_name="workspaces")
    slug = models.SlugField(max_length=40)
    name = models.CharField(max_length=100)
    default_cluster = models.SlugField(max_length=40, default="main")
    """Slug of the cluster its runs go to unless they say otherwise (machines own clusters, so no key here)."""
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = (models.UniqueConstraint("organization", "slug", name="workspace_slug_unique"),)

    def __str__(self) -> str:
        return f"{self.organization.slug}/{self.slug}"


class Membership(models.Model):
    workspace = models.ForeignKey(Workspace, models.CASCADE, related_name="memberships")
    user = models.ForeignKey(User, models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=10, choices=WorkspaceRole.choices, default=WorkspaceRole.VIEWER)

    class Meta:
        constraints = (
            models.UniqueConstraint("workspace", "user", name="one_role_per_workspace"),
            models.CheckConstraint(
                condition=models.Q(role__in=WorkspaceRole.values), name="workspace_role_known"
            ),
        )

    def __str__(self) -> str:
        return f"{self.user} {self.role} of {self.workspace}"


class ApiTokenQuerySet(models.QuerySet["ApiToken"]):
    def usable(self) -> "ApiTokenQuerySet":
        now = timezone.now()
        return self.filter(revoked_at=None).filter(models.Q(expires_at=None) | models.Q(expires_at__gt=now))


class ApiToken(models.Model):
    """A secret that acts with a role. Shown once; only its SHA-256 is kept (it has 256 random bits)."""

    organization = models.ForeignKey(Organization, models.CASCADE, related_name="tokens")
    workspace = models.ForeignKey(Workspace, models.CASCADE, null=True, related_name="tokens")
    """None: a token for the organization's machines (operators)."""
    user = models.ForeignKey(User, models.CASCADE, related_name="tokens")
    """Its maker. A token never outlives or exceeds the maker's own role."""
    name = models.CharField(max_length=60)
    role = models.CharField(max_length=10, choices=WorkspaceRole.choices + OrganizationRole.choices)
    prefix = models.CharField(max_length=12)
    digest = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True)
    last_used_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)

    objects = ApiTokenQuerySet.as_manager()

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"


class Secret(models.Model):
    """A value that the workspace's runs name and their workers get. Nobody is ever shown it again."""

    workspace = models.ForeignKey(Workspace, models.CASCADE, related_name="secrets")
    name = models.CharField(max_length=63)
    sealed = models.BinaryField()
    """The value, encrypted (common/encryption.py)."""
    created_at = models.DateTimeField(auto_now_add=True)
    changed_at = models.DateTimeField()
    changed_by = models.CharField(max_length=200)

    class Meta:
        constraints = (models.UniqueConstraint("workspace", "name", name="secret_name_unique"),)

    def __str__(self) -> str:
        return self.name

    @property
    def owner(self) -> str:
        """What the value is bound to: in another row it can't be read."""
        return f"secret:{self.workspace_id}:{self.name}"


class RegistryCredential(models.Model):
    """What machines sign in to a registry with, to pull the images of the workspace's runs that name it."""

    workspace = models.ForeignKey(Workspace, models.CASCADE, related_name="registry_credentials")
    name = models.CharField(max_length=63)
    registry = models.CharField(max_length=260)
    """Host and, where it is not the usual one, port: `nvcr.io`, `registry.example.com:5000`."""
    username = models.CharField(max_length=200)
    sealed = models.BinaryField()
    """The password or token, encrypted (common/encryption.py)."""
    created_at = models.DateTimeField(auto_now_add=True)
    changed_at = models.DateTimeField()
    changed_by = models.CharField(max_length=200)

    class Meta:
        constraints = (models.UniqueConstraint("workspace", "name", name="registry_credential_name_unique"),)

    def __str__(self) -> str:
        return self.name

    @property
    def owner(self) -> str:
        """What the password is bound to: in another row it can't be read."""
        return f"registry:{self.workspace_id}:{self.name}"


class AuditEvent(models.Model):
    """Append-only: a trigger of the database refuses UPDATE and DELETE."""

    organization = models.ForeignKey(Organization, models.PROTECT, related_name="audit_events")
    workspace = models.ForeignKey(Workspace, models.PROTECT, null=True, related_name="audit_events")
    at = models.DateTimeField(auto_now_add=True)
    actor = models.CharField(max_length=200)
    """Name as it was then: the person may be gone later."""
    address = models.GenericIPAddressField(null=True)
    action = models.CharField(max_length=60)
    target = models.CharField(max_length=200)
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)

    class Meta:
        ordering = ("-at", "-id")
        indexes = (models.Index("organization", models.F("at").desc(), name="audit_by_organization"),)

    def __str__(self) -> str:
        return f"{self.actor} {self.action} {self.target}"
