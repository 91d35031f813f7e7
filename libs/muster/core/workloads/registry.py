"""All workload kinds by name: what the rest of Muster asks of a definition."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct

from muster.core.workloads.defined import Made, Reader, Special
from muster.core.workloads.definition import Definition
from muster.core.workloads.edits import Shape
from muster.core.workloads.table import DEFINITIONS, EDITS, SPECIALS
from muster.model.api import ApiResource
from muster.model.workload import ChildState, Workload


class Kind(Struct, frozen=True):
    """How one kind is read, suspended and shown."""

    resource: ApiResource
    read: Callable[[bytes], Workload | ChildState | None]
    """Returns a workload, a child of a workload, or None for an object outside of Muster's concern."""
    unit_suffix: str
    """Suffix of the QueueUnit's name after the name of the object."""
    suspend_path: str = "/spec/suspend"
    """JSON pointer of the field for suspension."""
    alone: Callable[[bytes], Workload] | None = None
    """Reads an object with a parent as an independent workload, where only the parent can confirm the claim."""
    child: str = ""
    """Kind of the child objects, if any: children are watched with their parents."""
    auxiliary: tuple[str, ...] = ()
    """Kinds of the other objects made by the controller: parts of the workload, never queued alone."""
    annotated: bool = False
    """Operators without the field suspend by the annotation ``scheduling.x-k8s.io/suspend``."""
    pods_of: tuple[str, ...] = ()
    """Kinds that own the pods; a pod may own pods too."""
    edits: Shape = {}
    """Edits allowed while the object runs, besides the field for suspension."""
    ours: Shape = {}
    """Muster's writes into the spec, besides the field for suspension."""


def _makers_of(kind: str) -> tuple[Made, ...]:
    return tuple(
        Made(row.api_version.rpartition("/")[0], row.kind, rule)
        for row in DEFINITIONS.values()
        for rule in row.children
        if rule.kind == kind
    )


def kind_of(row: Definition, special: Special | None = None, shapes: tuple[Shape, Shape] = ({}, {})) -> Kind:
    """The kind of a definition."""
    group, _, version = row.api_version.rpartition("/")
    made: list[tuple[Made, ...]] = []

    def makers() -> tuple[Made, ...]:
        if not made:
            made.append(_makers_of(row.kind))
        return made[0]

    reader, lower = Reader(row, special, makers), row.kind.lower()
    named = any(other.child and any(c.kind == row.kind for c in other.children) for other in DEFINITIONS.values())
    return Kind(
        resource=ApiResource(group, version, row.plural or f"{lower}s", row.kind),
        read=reader.read,
        unit_suffix=f"-{lower}-qu" if row.unit_suffix is None else row.unit_suffix,
        suspend_path=f"/{row.suspend.at.replace('.', '/')}",
        alone=reader.alone if named else None,
        child=next((rule.kind for rule in row.children if not rule.aside), ""),
        auxiliary=tuple(rule.kind for rule in row.children if rule.aside),
        annotated=row.suspend.annotation,
        pods_of=row.pods_of or (row.kind,),
        edits=shapes[0],
        ours=shapes[1],
    )


KINDS: dict[str, Kind] = {
    name: kind_of(row, SPECIALS.get(name), EDITS.get(name, ({}, {}))) for name, row in DEFINITIONS.items()
}
"""{kind: row}"""

POD_OWNERS = frozenset(owner for kind in KINDS.values() for owner in kind.pods_of)
"""Kinds whose pods belong to a workload."""


def suspend_field(kind: str) -> str:
    """The field for suspension of a kind, as users write the path: ``spec.suspend``."""
    return KINDS[kind].suspend_path[1:].replace("/", ".") if kind in KINDS else "spec.suspend"


def child_of(kind: str) -> str:
    """Kind of the child objects of a kind; empty for a workload that owns its pods."""
    return KINDS[kind].child if kind in KINDS else ""


def parents_of(kind: str) -> tuple[str, ...]:
    """Kinds of the workloads with children of this kind."""
    return tuple(name for name, row in KINDS.items() if row.child == kind)


def shards(kinds: Iterable[str]) -> tuple[str, ...]:
    """The resources (plurals) to be watched for kinds: their own, and the resources of their children."""
    chosen = [*kinds]
    needed = [*chosen, *(KINDS[kind].child for kind in chosen if KINDS[kind].child)]
    return tuple(sorted({KINDS[kind].resource.plural for kind in needed}))
