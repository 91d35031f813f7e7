"""A unit of a submitted job, as the watcher would report the unit: a workload, and its running pods."""

from __future__ import annotations

from collections.abc import Iterator

from muster.model.keys import Ref
from muster.model.places import Placement
from muster.model.resources import Vector, add_into
from muster.model.workload import PodSet, PodState, Workload
from muster.tracesim.decide.answer import PodWhereabouts
from muster.tracesim.decide.situation import SituationJob, SituationPod, SituationUnit
from muster.tracesim.facts import EPOCH_MS, KIND

SET_LABEL = "training.kubeflow.org/replica-type"
"""The label by which the pods here say which set of their unit they are of."""


class LiveUnit:
    """A unit that has been submitted."""

    def __init__(self, unit: SituationUnit, job: SituationJob, uid: str, rv: int) -> None:
        self.unit = unit
        self.job = job
        self.sets: dict[str, list[SituationPod]] = {}
        """Name of a pod set -> its pods, which ask for the same."""
        shapes: dict[str, str] = {}
        for pod in unit.pods:
            shape = repr((pod.subgroup, pod.request, pod.rules))
            self.sets.setdefault(shapes.setdefault(shape, f"set-{len(shapes)}"), []).append(pod)
        self.workload = self._submitted(uid, rv)
        self.places: dict[str, PodWhereabouts] = {}
        """Name of a pod -> where it runs."""
        self.starts = 0

    def _submitted(self, uid: str, rv: int) -> Workload:
        need: Vector = {}
        for pod in self.unit.pods:
            add_into(need, pod.need)
        return Workload(
            ref=Ref(KIND, self.job.namespace, self.unit.uid, uid),
            api_version="ray.io/v1",
            rv=rv,
            generation=1,
            created=EPOCH_MS + self.unit.created,
            phase="waiting",
            suspended=True,
            need={"ack": need, "full": need},
            topology=self.job.topology,
            pod_sets=tuple(PodSet(name, len(pods), pods[0].request, pods[0].rules) for name, pods in self.sets.items()),
            priority=self.job.priority,
            settled=True,
            labels=dict(sorted(self.job.labels.items())),
        )

    def members(self) -> Iterator[tuple[str, SituationPod]]:
        """(pod set, pod) of all its pods."""
        return ((name, pod) for name, pods in self.sets.items() for pod in pods)

    def pod_ref(self, pod: SituationPod) -> Ref:
        """A pod that is created again is another pod."""
        uid = f"{self.workload.ref.uid}/{pod.name} {self.starts}"
        return Ref("Pod", self.job.namespace, f"{self.job.name}.{pod.name}", uid)

    def pod_state(self, name: str, pod: SituationPod, rv: int) -> PodState:
        """A pod of set ``name`` that runs."""
        where = self.places[pod.name]
        return PodState(
            ref=self.pod_ref(pod),
            rv=rv,
            owner_uid=self.workload.ref.uid,
            node=where.node,
            running=True,
            request=pod.request,
            labels={SET_LABEL: name},
            rules=pod.rules,
            devices=where.devices,
        )

    def assigned(self, placements: tuple[Placement, ...]) -> dict[str, PodWhereabouts]:
        """Where each of its pods goes, set by set."""
        where: dict[str, PodWhereabouts] = {}
        for name, pods in self.sets.items():
            spots: list[PodWhereabouts] = []
            for place in placements:
                if place.pod_set == name:
                    per_pod = len(place.devices) // place.count
                    spots += [
                        PodWhereabouts(place.node, place.devices[i * per_pod : (i + 1) * per_pod])
                        for i in range(place.count)
                    ]
            for pod, spot in zip(pods, spots, strict=True):
                where[pod.name] = spot
        return where
