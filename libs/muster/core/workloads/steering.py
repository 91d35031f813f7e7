"""Which pod templates get muster's ``schedulerName`` and the mark of the gang.

A workload whose pods name another scheduler is left to the other scheduler as a whole: two schedulers with half a gang
each would place no gang. ``default-scheduler`` is filled in by the API server, so the value does not count as a choice.
``ray.io/scheduler-name: kube-scheduler``, as a label or an annotation, is the documented way to ask for a gang.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from muster.core.objects.meta import GANG, GANG_SWITCH, MAX_NAME, ON_FLAVORS, SCHEDULING_GROUP, Meta
from muster.core.objects.podspec import PodTemplate, RawToleration
from muster.model.placing import Toleration
from muster.model.quota import FlavorNodes
from muster.model.text import clean, shorten
from muster.model.workload import DEFAULT_SCHEDULER, SCHEDULERS, Template

SCHEDULER = SCHEDULERS[0]
OURS = frozenset(SCHEDULERS)
"""Scheduler names of pods placed by muster."""
UNCHOSEN = frozenset({"", DEFAULT_SCHEDULER})
"""Scheduler names not chosen by users."""
GANG_SCHEDULERS = frozenset({"kube-scheduler", *SCHEDULERS})
"""Values of Ray's scheduler label that ask for a gang."""
_STEP = re.compile(r"\.([A-Za-z0-9]{1,64})|\[([0-9]{1,6})\]")


class Steering:
    """The pod templates of a workload."""

    def __init__(self, added: Mapping[str, FlavorNodes] | None = None) -> None:
        """``added``: {pod set: what Muster added to its template}."""
        self.added = added or {}
        self._found: list[Template] = []
        self._left = self._elsewhere = False

    def as_authored(self, name: str, template: PodTemplate) -> PodTemplate:
        """The template of a pod set without what Muster added for the nodes of a flavor."""
        spec = template.spec
        own = self.on_nodes(name.lower()[:MAX_NAME], spec.node_selector, spec.tolerations)
        if not own["written"] and not own["given"]:
            return template
        selector = {key: value for key, value in (spec.node_selector or {}).items() if key not in own["written"]}
        tolerations = [one for index, one in enumerate(spec.tolerations or ()) if index not in own["given"]]
        return replace(
            template, spec=replace(spec, node_selector=selector or None, tolerations=tuple(tolerations) or None)
        )

    def on_nodes(
        self, name: str, selector: Mapping[str, str] | None, tolerations: Sequence[RawToleration] | None
    ) -> dict[str, Any]:
        """The fields of a Template about the nodes of its pods."""
        added, given = self.added.get(name, FlavorNodes()), list[int]()
        written = {key: value for key, value in (selector or {}).items() if added.labels.get(key) == value}
        left = list(added.tolerations)
        for index, raw in reversed([*enumerate(tolerations or ())]):
            one = Toleration(raw.key or "", raw.operator or "Equal", raw.value or "", raw.effect or "")
            if one in left:
                left.remove(one)
                given.insert(0, index)
        return {
            "pods": name,
            "selects": tuple(sorted(key for key in selector or {} if key not in written)),
            "written": written,
            "tolerates": len(tolerations or ()),
            "given": tuple(given),
        }

    def leave(self) -> None:
        """The templates of this workload cannot be written."""
        self._left = True

    def add(
        self, template: PodTemplate, path: str, *, pods: str = "", fixed: bool = False, sealed: bool = False
    ) -> None:
        """Add a pod template at a path (``spec.workerGroupSpecs[0].template``).

        ``pods``: its pod set. ``fixed``: the spec is immutable, but for the nodes of the pods. ``sealed``: all of it.
        """
        pointer = pointer_of(path)
        if not pointer or not template.spec.containers:
            self.leave()
            return
        self.describe(
            Template(
                pointer,
                named=template.spec.scheduler_name in OURS,
                marked=GANG in template.annotations,
                metadata=template.metadata is not None,
                annotations=bool(template.annotations),
                fixed=fixed,
                sealed=sealed,
                group=_group_of(template),
                noted=bool(template.annotations.get(SCHEDULING_GROUP)),
                **self.on_nodes(pods, template.spec.node_selector, template.spec.tolerations),
            ),
            template.spec.scheduler_name or "",
        )

    def describe(self, template: Template, scheduler: str) -> None:
        """Add a template of pods with this scheduler name."""
        self._elsewhere |= scheduler not in UNCHOSEN and scheduler not in OURS
        self._found.append(template)

    def templates(self, meta: Meta) -> tuple[Template, ...]:
        """The templates to change at a resume; ``elsewhere`` where another scheduler is named."""
        if self._left:
            return ()
        if self._elsewhere or _elsewhere(meta.labels) or _elsewhere(meta.annotations):
            return tuple(replace(template, elsewhere=True) for template in self._found)
        return tuple(self._found)


def added_to(meta: Meta) -> dict[str, FlavorNodes]:
    """{pod set: what Muster added to its template}, as the annotation of the object says; empty where unreadable."""
    text = meta.annotations.get(ON_FLAVORS, "")
    try:
        return msgspec.json.decode(text, type=dict[str, FlavorNodes]) if text else {}
    except msgspec.DecodeError:
        return {}


def _group_of(template: PodTemplate) -> str:
    group = template.spec.scheduling_group
    return shorten(clean((group.pod_group_name if group is not None else None) or ""), MAX_NAME)


def pointer_of(path: str) -> str:
    """A path in users' notation (``spec.groups[0].template``) as a JSON pointer; empty for any other text."""
    steps = _STEP.findall("." + path)
    whole = "".join(f".{name}" if name else f"[{index}]" for name, index in steps)
    return "".join(f"/{name or index}" for name, index in steps) if whole == f".{path}" else ""


def _elsewhere(texts: Mapping[str, str]) -> bool:
    name = texts.get(GANG_SWITCH, "")
    return name not in UNCHOSEN and name not in GANG_SCHEDULERS


def gang_asked(meta: Meta) -> dict[str, str]:
    """The label or annotation that asks for a gang, if any."""
    name = meta.labels.get(GANG_SWITCH) or meta.annotations.get(GANG_SWITCH, "")
    return {GANG_SWITCH: name} if name in GANG_SCHEDULERS else {}
