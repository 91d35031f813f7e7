"""Pods of a Ray cluster that Ray's autoscaler grows in place (Ray from 2.60 on): annotation ``ray.io/ippr``.

It says for each group how large its pods may become; Ray tries that at every tick at which something waits, past
``maxReplicas``, and does nothing else in a tick in which it is refused. So the entry is the grant: the size of the
template for groups that may not grow, the owner's value for those that may.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct, field, structs

from muster.core.objects.meta import IPPR, OWN_IPPR, RESIZE
from muster.core.objects.podspec import Resources
from muster.core.workloads.ray import HeadGroup, RayClusterSpec, WorkerGroup
from muster.model.elastic import ScaledGroup
from muster.model.raydemand import RAY_UNIT
from muster.model.resources import QuantityError, Vector, parse_quantity

OURS = "muster.dev"
"""Top-level key of our entry."""
MAX_TEXT = 16_384
HEAD = "headgroup"
GROWS = {"cpu": "max-cpu", "memory": "max-memory"}
"""{resource: how the annotation calls the most of it}"""
MOST = 2**53


class Sizes(Struct, frozen=True):
    """What an object says about growth in place."""

    groups: dict[str, dict[str, object]] = field(default_factory=dict)
    """As its owner wants it, group by group."""
    text: str = ""
    """The same as its owner wrote it."""
    ours: bool = False
    """The value of the annotation was written by us."""


def sizes_of(notes: Mapping[str, str]) -> Sizes:
    """What is unreadable allows nothing: Ray refuses it too."""
    text = notes.get(IPPR, "")
    found = _object(text)
    ours = found.get(OURS) is True
    if ours:
        text = notes.get(OWN_IPPR, "")
        found = _object(text)
    groups = found.get("groups")
    named = {name: each for name, each in groups.items() if isinstance(each, dict)} if isinstance(groups, dict) else {}
    return Sizes(named, text, ours)


def growing(notes: Mapping[str, str]) -> tuple[str, ...]:
    """Worker groups whose pods may be grown now."""
    parts = (part.partition("/")[0] for part in notes.get(RESIZE, "")[:MAX_TEXT].split(","))
    return tuple(dict.fromkeys(name for name in parts if name))


def with_growth(group: ScaledGroup, raw: WorkerGroup, sizes: Sizes) -> ScaledGroup:
    """The group, and what one pod of it asks for on top once it is grown."""
    found = _growth(raw, sizes.groups.get(group.name))
    if not found:
        return group
    large = {name: amount + found.get(name, 0) for name, amount in base_of(raw).items()}
    offers = dict(group.offers)
    if "CPU" in offers:
        offers["CPU"] = -(-large["cpu"] // 1000) * RAY_UNIT
    if "memory" in offers:
        offers["memory"] = large["memory"] * RAY_UNIT
    return structs.replace(group, grows=found, grows_to=offers)


def notes_of(spec: RayClusterSpec, notes: Mapping[str, str], grow: Iterable[str]) -> dict[str, str]:
    """The annotations after which pods of these groups may be grown, and no others; none where no group asks for it."""
    sizes, may = sizes_of(notes), set(grow)
    if not sizes.groups and not notes.get(RESIZE):
        return {}
    raws: dict[str, WorkerGroup | HeadGroup] = {each.group_name: each for each in spec.worker_group_specs or ()}
    raws[HEAD] = spec.head_group_spec
    written: dict[str, object] = {}
    allowed: list[str] = []
    for name, size in sorted(sizes.groups.items()):
        raw = raws.get(name)
        base = base_of(raw) if raw is not None else {}
        if raw is None or not base:
            continue  # Ray knows no such group, or refuses to grow it.
        more = _growth(raw, size) if name in may else {}
        written[name] = dict(size) if more else {**size, **{GROWS[key]: _text(base[key], key) for key in GROWS}}
        asked = _of_container(raw, limits=False)
        allowed += [f"{name}/{key}={_text(asked[key] + amount, key)}" for key, amount in sorted(more.items())]
    found = {RESIZE: ",".join(allowed)}
    if sizes.groups:
        text = msgspec.json.encode({"groups": written, OURS: True}, order="deterministic").decode()
        found |= {IPPR: text, OWN_IPPR: sizes.text}
    return found


def base_of(raw: WorkerGroup | HeadGroup) -> Vector:
    """How large a pod of a group is made, as Ray reads it: limits of its first container, else requests; empty where it
    does not say both, and is not grown.
    """
    found = _of_container(raw, limits=True)
    return found if len(found) == len(GROWS) else {}


def _of_container(raw: WorkerGroup | HeadGroup, *, limits: bool) -> Vector:
    """What the first container has of each: limits before requests, or the other way round."""
    containers = raw.template.spec.containers
    own = (containers[0].resources if containers else None) or Resources()
    first, second = (own.limits, own.requests) if limits else (own.requests, own.limits)
    texts = {**(second or {}), **(first or {})}
    return {name: amount for name in GROWS if (amount := _amount(texts.get(name), name)) is not None}


def _growth(raw: WorkerGroup | HeadGroup, size: dict[str, object] | None) -> Vector:
    base = base_of(raw) if size else {}
    found = {}
    for name in base:
        most = _amount((size or {}).get(GROWS[name]), name)
        if most is not None and most > base[name]:
            found[name] = most - base[name]
    return found


def _amount(value: object, name: str) -> int | None:
    if value is None or isinstance(value, bool):
        return None
    try:
        amount = parse_quantity(str(value)[:32], name)
    except QuantityError:
        return None
    return amount if 0 <= amount < MOST else None


def _text(amount: int, name: str) -> str:
    return f"{amount}m" if name == "cpu" else str(amount)


def _object(text: str) -> dict[str, object]:
    try:
        found = msgspec.json.decode(text) if 0 < len(text) <= MAX_TEXT else None
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}
