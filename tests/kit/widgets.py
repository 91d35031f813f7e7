"""A kind that Muster does not know: a platform team's definition, its CustomResourceDefinition, and its objects."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from kit.jobs import meta, template
from kit.operators import _Operator, deletions, phase_of
from muster.core.reading.watched import WATCHED
from muster.core.workloads.registry import DEFINITIONS, KINDS, POD_OWNERS
from muster.fakecluster.operations import ApiOperation
from muster.model.api import ApiResource
from muster.runtime import kinds

Obj = dict[str, Any]

WIDGET = """
kind: Widget
apiVersion: example.com/v1
suspend: {at: spec.paused}
pods:
- {template: spec.template, count: [spec.size]}
ends:
- {outcome: succeeded, when: {field: status.state, in: [Done]}}
- {outcome: failed, when: {field: status.state, in: [Broken]}}
settled: {field: status.state, in: [Stopped]}
stops: {field: status.state}
running: {field: status.state, in: [Up]}
edits: {ttl: free}
controllers: ["system:serviceaccount:widgets:operator"]
"""


@contextmanager
def defined(text: str = WIDGET) -> Iterator[str]:
    """The kind of a definition, known to this process meanwhile."""
    definition = kinds.read(text)
    tables: tuple[Obj, ...] = (KINDS, DEFINITIONS, WATCHED)
    before = [dict(table) for table in tables]
    kinds.define(definition)
    try:
        yield definition.kind
    finally:
        for table, rows in zip(tables, before, strict=True):
            table.clear()
            table.update(rows)
        POD_OWNERS.discard(definition.kind)


def widget(name: str = "one", namespace: str = "video", *, cpu: str = "1", size: int = 3, **spec: Any) -> Obj:
    body = {"paused": True, "size": size, "template": template(cpu), **spec}
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": meta(name, namespace), "spec": body}


def crd() -> Obj:
    """The CustomResourceDefinition of Widgets."""
    spec: Obj = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    spec["properties"] = {"paused": {"type": "boolean"}, "size": {"type": "integer"}}
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": spec, "status": status}}
    version: Obj = {"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}}
    version["schema"] = {"openAPIV3Schema": schema}
    names = {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "names": names, "scope": "Namespaced", "versions": [version]},
    }


class WidgetOperator(_Operator):
    """Makes the pods of a Widget that is not paused, and says how it is."""

    kinds: ClassVar[tuple[ApiResource, ...]] = (ApiResource("example.com", "v1", "widgets", "Widget"),)
    label: ClassVar[str] = "example.com/widget"

    def look(self, found: Obj, pods: dict[str, Obj]) -> tuple[Obj | None, list[ApiOperation]]:
        spec, name = found["spec"], found["metadata"]["name"]
        if (found.get("status") or {}).get("state") == "Done":
            return None, []
        if spec.get("paused"):
            return {"state": "Stopping" if pods else "Stopped"}, deletions(pods)
        wanted = [f"{name}-{index}" for index in range(spec["size"])]
        missing = [self.pod(found, found, each, spec["template"]) for each in wanted if each not in pods]
        phases = [phase_of(pods.get(each)) for each in wanted]
        if phases and all(phase == "Succeeded" for phase in phases):
            return {"state": "Done"}, []
        return {"state": "Up" if "Running" in phases else "Starting"}, list(missing)
