"""All workload kinds by name: what the rest of Muster asks of a definition."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
from msgspec import Struct

from muster.core.objects.meta import unreadable
from muster.core.workloads.defined import Made, Reader
from muster.core.workloads.definition import Definition, Pods, Suspension, check
from muster.core.workloads.edits import BY_HAND, Shape, edits_of, steered
from muster.core.workloads.table import DEFINITIONS, SPECIALS
from muster.model.api import VERSIONS, ApiResource
from muster.model.workload import ChildState, Switch, SwitchField, Workload


class Kind(Struct, frozen=True):
    """How one kind is read, suspended and shown."""

    resource: ApiResource
    read: Callable[[bytes], Workload | ChildState | None]
    """Returns a workload, a child of a workload, or None for an object outside of Muster's concern."""
    unit_suffix: str
    """Suffix of the QueueUnit's name after the name of the object."""
    suspend: Suspension = Suspension()
    suspend_path: str = "/spec/suspend"
    """JSON pointer of the field for suspension."""
    alone: Callable[[bytes], Workload] | None = None
    """Reads an object as a workload of its own, although the object names a parent: the parent made no such object.
    None: an object that names a parent is always a child.
    """
    children: tuple[str, ...] = ()
    """Kinds of the child objects, if any: children are watched with their parents."""
    auxiliary: tuple[str, ...] = ()
    """Kinds of the other objects made by the controller: parts of the workload, never queued alone."""
    pods_of: tuple[str, ...] = ()
    """Kinds that own the pods; a pod may own pods too."""
    pods: tuple[Pods, ...] = ()
    edits: Shape = {}
    """Edits allowed while the object runs, besides the field for suspension."""
    ours: Shape = {}
    """Muster's writes into the spec, besides the field for suspension."""


def makers_of(kind: str) -> tuple[Made, ...]:
    """The kinds whose controllers make objects of a kind."""
    return tuple(
        Made(row.api_version.rpartition("/")[0], row.kind, rule)
        for row in DEFINITIONS.values()
        for rule in row.children
        if rule.kind == kind
    )


def kind_of(row: Definition) -> Kind:
    """The kind of a definition."""
    group, _, version = row.api_version.rpartition("/")
    lower, makers = row.kind.lower(), makers_of(row.kind)
    pointer, plural = f"/{row.suspend.at.replace('.', '/')}", row.plural or f"{lower}s"
    own = row.kind in OWN
    named = None if own else SwitchField(group, version, plural, pointer, row.suspend.value, row.suspend.resumed)
    reader = Reader(row, SPECIALS.get(row.kind), makers, named)
    free, ours = BY_HAND.get(row.kind) or (edits_of(row.edits), steered(row.pods))
    return Kind(
        resource=ApiResource(group, version, plural, row.kind),
        read=reader.read,
        unit_suffix=suffix_of(row.kind) if row.unit_suffix is None else row.unit_suffix,
        suspend=row.suspend,
        suspend_path=pointer,
        alone=reader.alone if any(DEFINITIONS[made.owner].child and not made.rule.aside for made in makers) else None,
        children=tuple(rule.kind for rule in row.children if not (rule.aside or rule.last)),
        auxiliary=tuple(rule.kind for rule in row.children if rule.aside or rule.last),
        pods_of=row.pods_of or (row.kind,),
        pods=row.pods,
        edits=free,
        ours=ours,
    )


def suffix_of(kind: str) -> str:
    """Suffix of the names of a kind's QueueUnits, where the definition has no other."""
    return KINDS[kind].unit_suffix if kind in KINDS else f"-{kind.lower()}-qu"


OWN = frozenset(DEFINITIONS)
"""Kinds that Muster knows by itself: no definition of others takes their place."""
KINDS: dict[str, Kind] = {}
"""{kind: row}"""
KINDS |= {name: kind_of(row) for name, row in DEFINITIONS.items()}

POD_OWNERS = {owner for kind in KINDS.values() for owner in kind.pods_of}
"""Kinds whose pods belong to a workload."""


def define(row: Definition) -> None:
    """Know one kind more, in this process. Raises UnreadableError naming the field that cannot be used."""
    check(row, OWN)
    DEFINITIONS[row.kind] = row
    try:
        KINDS[row.kind] = kind_of(row)
    except (TypeError, ValueError, AttributeError) as err:
        del DEFINITIONS[row.kind]
        raise unreadable("object", "paths_contradict", said=str(err)[:160]) from err
    POD_OWNERS.update(KINDS[row.kind].pods_of)
    for rule in row.children:
        KINDS[rule.kind] = kind_of(DEFINITIONS[rule.kind])


def defined(kinds: Iterable[str]) -> dict[str, str]:
    """{kind: definition as JSON} of the kinds that others define."""
    return {
        kind: msgspec.json.encode(DEFINITIONS[kind], order="deterministic").decode()
        for kind in kinds
        if kind not in OWN
    }


def resource_of(kind: str, switch: Switch) -> ApiResource:
    """Where the objects of a workload's kind are served."""
    own = switch.field
    return KINDS[kind].resource if own is None else ApiResource(own.group, own.version, own.plural, kind)


def is_job(kind: str) -> bool:
    """Whether objects of a kind are queued: neither pods, nor gangs, nor what quota and nodes are read from."""
    return kind in KINDS or not ("." in kind or kind in VERSIONS or kind == "PodGroup")


def suspend_field(kind: str) -> str:
    """The field for suspension of a kind, as users write the path: ``spec.suspend``."""
    return KINDS[kind].suspend_path[1:].replace("/", ".") if kind in KINDS else "suspension"


def child_of(kind: str) -> str:
    """Kind of the child objects of a kind; empty for a workload that owns its pods."""
    return next(iter(KINDS[kind].children), "") if kind in KINDS else ""


def parents_of(kind: str) -> tuple[str, ...]:
    """Kinds of the workloads with children of this kind."""
    return tuple(name for name, row in KINDS.items() if kind in row.children)


def child_shards(kind: str) -> tuple[str, ...]:
    """The resources (plurals) of the children of a kind."""
    return tuple(KINDS[child].resource.plural for child in KINDS[kind].children) if kind in KINDS else ()


def shards(kinds: Iterable[str]) -> tuple[str, ...]:
    """The resources (plurals) to be watched for kinds: their own, and the resources of their children."""
    chosen = [*kinds]
    needed = [*chosen, *(child for kind in chosen for child in KINDS[kind].children)]
    return tuple(sorted({KINDS[kind].resource.plural for kind in needed}))
