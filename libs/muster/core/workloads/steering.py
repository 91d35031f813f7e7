"""Which descriptions of pods are to say that we place them: ``schedulerName``, and the mark of the gang.

A workload whose pods name another scheduler is left to that one, all of it: half a gang placed by one and half by
another would be no gang. ``default-scheduler`` is filled in by the API server itself, so it does not count as a choice.
``ray.io/scheduler-name: kube-scheduler``, as a label or an annotation, is the documents' way to ask for a gang.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from muster.core.objects.meta import GANG, MAX_NAME, SCHEDULING_GROUP, Meta
from muster.core.objects.podspec import PodTemplate
from muster.model.text import clean, shorten
from muster.model.workload import DEFAULT_SCHEDULER, SCHEDULERS, Template

SCHEDULER = SCHEDULERS[0]
OURS = frozenset(SCHEDULERS)
"""Scheduler names whose pods we place."""
UNCHOSEN = frozenset({"", DEFAULT_SCHEDULER})
"""Scheduler names that people did not choose."""
GANG_SWITCH = "ray.io/scheduler-name"
GANG_SCHEDULERS = frozenset({"kube-scheduler"})
"""What the switch says where a gang is asked for, besides our own names."""
_STEP = re.compile(r"\.([A-Za-z0-9]{1,64})|\[([0-9]{1,6})\]")


class Steering:
    """The descriptions of a workload's pods, as they are read."""

    def __init__(self) -> None:
        self._found: list[Template] = []
        self._left = False

    def leave(self) -> None:
        """Another scheduler places the pods of this workload."""
        self._left = True

    def add(self, template: PodTemplate, path: str, *, fixed: bool = False, sealed: bool = False) -> None:
        """A pod template at a path (``spec.workerGroupSpecs[0].template``).

        ``fixed``: its spec cannot be changed. ``sealed``: nor its annotations.
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
        """A description of pods that names this scheduler."""
        if scheduler not in UNCHOSEN and scheduler not in OURS:
            self.leave()
        self._found.append(template)

    def templates(self, meta: Meta) -> tuple[Template, ...]:
        """What may be changed when it is resumed; nothing where another scheduler is named."""
        return () if self._left or _elsewhere(meta.labels) or _elsewhere(meta.annotations) else tuple(self._found)


def _group_of(template: PodTemplate) -> str:
    group = template.spec.scheduling_group
    return shorten(clean((group.pod_group_name if group is not None else None) or ""), MAX_NAME)


def pointer_of(path: str) -> str:
    """A path as people read it (``spec.groups[0].template``) as a JSON pointer; empty when it is none."""
    steps = _STEP.findall("." + path)
    whole = "".join(f".{name}" if name else f"[{index}]" for name, index in steps)
    return "".join(f"/{name or index}" for name, index in steps) if whole == f".{path}" else ""


def _elsewhere(texts: Mapping[str, str]) -> bool:
    name = texts.get(GANG_SWITCH, "")
    return name not in UNCHOSEN and name not in OURS and name not in GANG_SCHEDULERS
