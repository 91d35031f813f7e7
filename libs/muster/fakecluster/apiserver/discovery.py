"""Discovery documents, the version, and access reviews: what a client asks before it begins.

Pure functions over the kinds a server has. Aggregated discovery and OpenAPI documents do not exist here.
"""

from __future__ import annotations

from collections.abc import Iterable

from muster.fakecluster.apiserver.kinds import ResourceRules
from muster.fakecluster.apiserver.status import Obj

VERSION = "v1.36.3"
"""The release whose behaviour is simulated; the contract tests compare with it."""

_VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]

Denied = frozenset[tuple[str, str, str]]
"""(verb, group, plural) of the requests that the one user may not make; ``*`` means all of them."""


def version_document() -> Obj:
    major, minor, _ = VERSION.lstrip("v").split(".")
    return {"major": major, "minor": minor, "gitVersion": VERSION, "platform": "simulated"}


def api_versions() -> Obj:
    """``/api``."""
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def group_list(kinds: Iterable[ResourceRules]) -> Obj:
    """``/apis``."""
    groups = sorted({kind.resource.group for kind in kinds if kind.resource.group})
    documents = [group_document(group, kinds) for group in groups]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [document for document in documents if document]}


def group_document(group: str, kinds: Iterable[ResourceRules]) -> Obj | None:
    """``/apis/<group>``; None when there is no such group."""
    versions = sorted({kind.resource.version for kind in kinds if kind.resource.group == group})
    if not versions:
        return None
    entries = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"kind": "APIGroup", "apiVersion": "v1", "name": group, "versions": entries, "preferredVersion": entries[0]}


def resource_list(root: str, kinds: Iterable[ResourceRules]) -> Obj | None:
    """``/apis/<group>/<version>`` or ``/api/v1``; None when nothing is served there."""
    served = [kind for kind in kinds if kind.resource.root == root]
    if not served:
        return None
    resources = [entry for kind in served for entry in _entries(kind)]
    version = served[0].resource.api_version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources}


def _entries(kind: ResourceRules) -> Iterable[Obj]:
    resource = kind.resource
    entry: Obj = {
        "name": resource.plural,
        "singularName": resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": _VERBS,
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    yield entry
    for subresource in kind.subresources:
        verbs = ["get", "patch", "update"] if subresource in ("resize", "status") else ["create"]
        named = {"binding": "Binding", "eviction": "Eviction"}.get(subresource, resource.kind)
        yield {
            "name": f"{resource.plural}/{subresource}",
            "singularName": "",
            "namespaced": resource.namespaced,
            "kind": named,
            "verbs": verbs,
        }


def is_denied(denied: Denied, verb: str, group: str, plural: str) -> bool:
    """Whether the one user may not do this."""
    return any(
        all(rule in ("*", asked) for rule, asked in zip(entry, (verb, group, plural), strict=True)) for entry in denied
    )


def access_review(review: Obj, denied: Denied) -> Obj:
    """A SelfSubjectAccessReview with its answer."""
    asked = (review.get("spec") or {}).get("resourceAttributes") or {}
    plural = asked.get("resource", "")
    if asked.get("subresource"):
        plural += f"/{asked['subresource']}"
    refused = is_denied(denied, asked.get("verb", ""), asked.get("group", ""), plural)
    return {**review, "metadata": {}, "status": {"allowed": not refused, **({"denied": True} if refused else {})}}
