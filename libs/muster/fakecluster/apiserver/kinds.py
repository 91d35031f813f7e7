"""The resources of the simulated server from the start, and the rules of each resource.

A table: one row per resource. Further custom resources are served once their definition is created, as on a real
server (`kind_of_definition`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from muster.fakecluster.apiserver.status import Obj
from muster.model import api
from muster.model.api import ApiResource

SECRETS = ApiResource("", "v1", "secrets", "Secret")
SERVICES = ApiResource("", "v1", "services", "Service")
SERVICE_ACCOUNTS = ApiResource("", "v1", "serviceaccounts", "ServiceAccount")
ROLES = ApiResource("rbac.authorization.k8s.io", "v1", "roles", "Role")
ROLE_BINDINGS = ApiResource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
LEASES = api.LEASES

_NAMED = frozenset(["metadata.name"])
_FIELDS = frozenset(["metadata.name", "metadata.namespace"])


class ResourceRules(Struct, frozen=True, kw_only=True):
    """The rules of one resource."""

    resource: ApiResource
    custom: bool = False
    """Defined by a CustomResourceDefinition."""
    status: bool = False
    """Has a status subresource: status is written there and nowhere else."""
    generation: Literal["", "spec", "content"] = ""
    """What a change of counts as a new generation: nothing, the spec, or all but metadata (and status, if apart)."""
    graceful: bool = False
    """Deleted in two steps: marked first, removed when its grace period is over."""
    unconditional: bool = True
    """A PUT may leave the resourceVersion out."""
    orphans: bool = False
    """A DELETE that does not say otherwise leaves the dependents."""
    fields: frozenset[str] = _FIELDS
    """What a fieldSelector may name."""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()

    @property
    def subresources(self) -> tuple[str, ...]:
        if self.resource.plural == "pods":
            return ("binding", "eviction", "resize", "status")
        return ("status",) if self.status else ()


def _custom(resource: ApiResource, *, status: bool, short_names: tuple[str, ...] = ()) -> ResourceRules:
    categories = ("all",) if resource.group == "ray.io" else ()
    return ResourceRules(
        resource=resource,
        custom=True,
        status=status,
        generation="content",
        unconditional=False,
        fields=_FIELDS if resource.namespaced else _NAMED,
        short_names=short_names,
        categories=categories,
    )


KINDS: tuple[ResourceRules, ...] = (
    ResourceRules(resource=api.NAMESPACES, status=True, fields=_NAMED | {"status.phase"}, short_names=("ns",)),
    ResourceRules(resource=api.NODES, status=True, fields=_NAMED | {"spec.unschedulable"}, short_names=("no",)),
    ResourceRules(
        resource=api.PODS,
        status=True,
        generation="spec",
        graceful=True,
        fields=_FIELDS
        | {"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "status.phase"},
        short_names=("po",),
        categories=("all",),
    ),
    ResourceRules(resource=api.CONFIG_MAPS, short_names=("cm",)),
    ResourceRules(resource=api.POD_TEMPLATES, generation="content"),
    ResourceRules(resource=api.DISRUPTION_BUDGETS, status=True, generation="spec", short_names=("pdb",)),
    ResourceRules(resource=SECRETS, fields=_FIELDS | {"type"}),
    ResourceRules(resource=SERVICES, status=True, short_names=("svc",), categories=("all",)),
    ResourceRules(resource=SERVICE_ACCOUNTS, short_names=("sa",)),
    ResourceRules(
        resource=api.EVENTS,
        fields=_FIELDS
        | {"reason", "type", "involvedObject.kind", "involvedObject.name", "involvedObject.namespace"}
        | {"involvedObject.uid", "reportingComponent"},
        short_names=("ev",),
    ),
    ResourceRules(resource=ROLES),
    ResourceRules(resource=ROLE_BINDINGS),
    ResourceRules(resource=LEASES, unconditional=False),
    ResourceRules(resource=api.PRIORITY_CLASSES, generation="content", fields=_NAMED, short_names=("pc",)),
    ResourceRules(
        resource=api.JOBS,
        status=True,
        generation="spec",
        orphans=True,
        fields=_FIELDS | {"status.successful"},
        categories=("all",),
    ),
    ResourceRules(
        resource=api.CRDS,
        status=True,
        generation="spec",
        unconditional=False,
        fields=_NAMED,
        short_names=("crd", "crds"),
    ),
    _custom(api.RAYJOBS, status=True),
    _custom(api.RAYCLUSTERS, status=True),
    _custom(api.RAYSERVICES, status=True),
    _custom(api.QUOTA_TREES, status=False),
    _custom(api.QUEUES, status=False),
    _custom(api.KAI_QUEUES, status=True),
    _custom(api.KAI_POD_GROUPS, status=True, short_names=("pg",)),
    _custom(api.QUEUE_UNITS, status=False, short_names=("qu", "qus")),
    _custom(api.POD_GROUPS[0], status=False),
    _custom(api.POD_GROUPS[1], status=True, short_names=("pg", "pgs")),
    _custom(api.PROVISIONING_REQUESTS, status=True, short_names=("provreq", "provreqs")),
)


def kinds_of_definition(definition: Obj) -> Iterator[ResourceRules]:
    """The kinds a CustomResourceDefinition makes the server serve, one per served version."""
    spec = definition["spec"]
    names = spec["names"]
    for version in spec["versions"]:
        if not version.get("served", True):
            continue
        resource = ApiResource(
            spec["group"], version["name"], names["plural"], names["kind"], spec.get("scope") != "Cluster"
        )
        short_names = tuple(names.get("shortNames") or ())
        yield _custom(resource, status="status" in (version.get("subresources") or {}), short_names=short_names)
