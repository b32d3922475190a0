"""The run document: its models, validation and JSON Schema. Import from here, not from the modules below."""

from wire.spec.document import Group, Metadata, RunDocument, RunSpec, WorkerGroup
from wire.spec.errors import SpecError, SpecErrors
from wire.spec.parse import parse_document, stored_document, validate_document
from wire.spec.resources import (
    GpuRequests,
    Network,
    NodeSelection,
    PerGpu,
    RequestedResources,
    Topology,
)
from wire.spec.schema import run_schema
from wire.spec.shapes import Shape
from wire.spec.task import ConfigFile, DriveRef, Probe, Probes, SecretRef, TaskTemplate
from wire.spec.tree import Unreadable, read_text

__all__ = [
    "ConfigFile",
    "DriveRef",
    "GpuRequests",
    "Group",
    "Metadata",
    "Network",
    "NodeSelection",
    "PerGpu",
    "Probe",
    "Probes",
    "RequestedResources",
    "RunDocument",
    "RunSpec",
    "SecretRef",
    "Shape",
    "SpecError",
    "SpecErrors",
    "TaskTemplate",
    "Topology",
    "Unreadable",
    "WorkerGroup",
    "parse_document",
    "read_text",
    "run_schema",
    "stored_document",
    "validate_document",
]
