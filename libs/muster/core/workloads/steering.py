"""Which pod templates get muster's ``schedulerName`` and the mark of the gang.

A workload whose pods name another scheduler is left to the other scheduler as a whole: two schedulers with half a gang
each would place no gang. ``default-scheduler`` is filled in by the API server, so the value does not count as a choice.
``ray.io/scheduler-name: kube-scheduler``, as a label or an annotation, is the documented way to ask for a gang.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from muster.core.objects.meta import GANG, GANG_SWITCH, MAX_NAME, SCHEDULING_GROUP, Meta
from muster.core.objects.podspec import PodTemplate
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

    def __init__(self) -> None:
        self._found: list[Template] = []
        self._left = False

    def leave(self) -> None:
        """Another scheduler places the pods of this workload."""
        self._left = True

    def add(self, template: PodTemplate, path: str, *, fixed: bool = False, sealed: bool = False) -> None:
        """Add a pod template at a path (``spec.workerGroupSpecs[0].template``).

        ``fixed``: the spec is immutable. ``sealed``: the annotations are immutable too.
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
            ),
            template.spec.scheduler_name or "",
        )

    def describe(self, template: Template, scheduler: str) -> None:
        """Add a template of pods with this scheduler name."""
        if scheduler not in UNCHOSEN and scheduler not in OURS:
            self.leave()
        self._found.append(template)

    def templates(self, meta: Meta) -> tuple[Template, ...]:
        """The templates to change at a resume; empty where another scheduler is named."""
        return () if self._left or _elsewhere(meta.labels) or _elsewhere(meta.annotations) else tuple(self._found)


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
