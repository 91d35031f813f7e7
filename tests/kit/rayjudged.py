"""A play in which Ray's autoscalers come and go with their clusters, and every write of ours is judged.

What policy ``muster-jobs`` refuses is refused here too, and the API server may be away for everybody.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from kit.elastic import ElasticPlay
from kit.rayscaler import RayScaler
from muster.core.actuation.carrying import Reply, Request
from muster.events.effects import EffectApplied
from muster.events.elastic import GateSet
from muster.model import api
from muster.model.elastic import read_counts

Object = dict[str, Any]
GRANTED = "muster.dev/granted"
KINDS = ("RayJob", "RayCluster", "RayService")


class LivesPlay(ElasticPlay):
    """A play whose autoscalers come and go with their clusters, with the policy, and an API server that may be away."""

    away = False

    def __init__(self, *leaves: tuple[str, str, str], **given: Any) -> None:
        self.reapplied: dict[str, Object] = {}
        """Manifests that a controller applies again before every tick."""
        self.broken: list[str] = []
        """Writes of ours that break what holds of all of them."""
        super().__init__(*leaves, kinds=KINDS, **given)
        send = self.cell._send

        def judged(request: Request) -> Reply:
            before, live = self._specs(), self._live()
            reply = send(request)
            self.broken += lowered(before, self._specs(), live)
            return reply

        self.cell._send = judged  # type: ignore[method-assign]

    def _specs(self) -> dict[str, Object]:
        table = self.cluster.server.store.table(api.RAYCLUSTERS)
        return {uid: obj for obj in table.objects.values() if (uid := obj["metadata"]["uid"])}

    def _live(self) -> dict[str, tuple[str, str]]:
        """{name of a pod that nobody has deleted: its cluster and group}"""
        found: dict[str, tuple[str, str]] = {}
        for pod in self.cluster.server.store.table(api.PODS).objects.values():
            meta = pod["metadata"]
            labels = meta.get("labels") or {}
            if labels.get("ray.io/node-type") == "worker" and not meta.get("deletionTimestamp"):
                found[meta["name"]] = (meta["ownerReferences"][0]["uid"], labels["ray.io/group"])
        return found

    def edit(self, ops: list[Object], name: str = "auto") -> None:
        """Refused where the API server is away, or the policy says so."""
        asked = [(op["path"].split("/")[3], op["value"]) for op in ops if op["path"].endswith("eplicas")]
        if not self.away and self.allows(name, [int(value) for index, value in asked if int(index) == 0]):
            super().edit(ops, name)
        elif name in self.scalers:
            self.scalers[name].leaving.clear()

    def apply(self, manifest: Object) -> None:
        group = manifest["spec"]["workerGroupSpecs"][0]
        name = manifest["metadata"]["name"]
        if not self.away and self.allows(name, [group.get("replicas", 0), group.get("minReplicas", 0)], group):
            super().apply(manifest)

    def allows(self, name: str, counts: list[int], group: Object | None = None) -> bool:
        """As policy muster-jobs: nothing above what is granted, but what was there before."""
        found = self.raycluster(name)
        notes, old = found["metadata"].get("annotations") or {}, found["spec"]["workerGroupSpecs"][0]
        if found["spec"].get("suspend") or GRANTED not in notes:
            return True
        if group is not None and group.get("numOfHosts", 1) > old.get("numOfHosts", 1):
            return False
        most = max(read_counts(notes[GRANTED]).get("small", 0), old.get("replicas") or 0, old.get("minReplicas", 0))
        return all(count <= most for count in counts)

    def attach(self) -> None:
        """An autoscaler beside every head; a head that was made anew knows nothing of before."""
        there = {each["metadata"]["name"]: each for each in self.clusters()}
        for name in [name for name in self.scalers if name not in there]:
            del self.scalers[name]
        for name, obj in there.items():
            if not name.startswith("fixed"):
                self.scalers.setdefault(name, RayScaler(stopped=not obj["spec"].get("enableInTreeAutoscaling")))

    def tick(self, times: int = 1) -> None:
        for _ in range(times):
            self.attach()
            for manifest in self.reapplied.values():
                self.apply(manifest)
            super().tick(1)
        self.attach()


def lowered(before: dict[str, Object], after: dict[str, Object], live: dict[str, tuple[str, str]]) -> list[str]:
    """What a write of ours does to clusters that none of ours must do. ``live``: workers, their cluster and group."""
    found = []
    for uid, obj in after.items():
        if uid not in before or obj["spec"].get("suspend") or before[uid] is obj:
            continue
        pairs = zip(before[uid]["spec"]["workerGroupSpecs"], obj["spec"]["workerGroupSpecs"], strict=True)
        for old, new in pairs:
            name = f"{obj['metadata']['name']}/{new['groupName']}"
            most, least, asked = new.get("maxReplicas", 0), new.get("minReplicas", 0), new.get("replicas") or 0
            going, left = named(new), named(old)
            hosts = max(new.get("numOfHosts", 1), 1)
            pods = {pod for pod, place in live.items() if place == (uid, new["groupName"])}
            if not going - left <= pods:
                found.append(f"{name}: {going - left - pods} are named, and no workers of it")
            if most < least <= old.get("maxReplicas", 0):
                found.append(f"{name}: maxReplicas {most} below minReplicas {least}: its operator would look away")
            if most < old.get("maxReplicas", 0) and most * hosts < len(pods - going):
                found.append(f"{name}: maxReplicas {most}, with {len(pods - going)} pods that nobody has named")
            # An admission with the minimum leaves what its owner wants, and asks for it as growth.
            if most < asked <= old.get("maxReplicas", 0) and not before[uid]["spec"].get("suspend"):
                found.append(f"{name}: maxReplicas {most}, with {asked} replicas that come as soon as it is raised")
            if asked < min(least, old.get("replicas") or 0):
                found.append(f"{name}: replicas {asked} below minReplicas {least}")
            if not left & pods <= going:
                found.append(f"{name}: {left - going} were named by others, and are not any more")
    return found


def named(group: Object) -> set[str]:
    return set((group.get("scaleStrategy") or {}).get("workersToDelete") or ())


def named_once(play: ElasticPlay) -> None:
    """No worker is named to its operator by two writes that both arrived."""
    gates: dict[tuple[int, int], GateSet] = {}
    times: Counter[str] = Counter()
    for stored in play.cell.log:
        for item, event in enumerate(stored.commit.events):
            if isinstance(event, GateSet) and event.workers:
                gates[stored.seq, item] = event
            if isinstance(event, EffectApplied) and event.action == "gate":
                gate = gates.pop((event.cause.seq, event.cause.item), None)
                if gate is not None:
                    times.update(pod.uid for pods in gate.workers.values() for pod in pods)
    assert not [uid for uid, count in times.items() if count > 1]
