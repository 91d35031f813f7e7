"""What really happens on a cluster, counted by a watch of its own: how often a job was started, what ran at once."""

from collections import Counter
from typing import Any

from kit.follow import Follow
from muster.events.facts import TreeNodeSpec
from muster.model import api
from muster.model.resources import Vector, add_into, parse_quantity, scaled
from muster.ports import ApiTransport

Object = dict[str, Any]


class Witness:
    """Counts RayClusters; `limits` are those of `root`, {path: {resource: amount}}."""

    def __init__(self, transport: ApiTransport, root: TreeNodeSpec) -> None:
        self.follow = Follow(transport, api.RAYCLUSTERS, self._heard)
        self.started: Counter[str] = Counter()
        """namespace/name of a RayJob -> how many RayClusters were ever made for it"""
        self.order: list[str] = []
        """The RayJobs, as their RayClusters appeared"""
        self.live: dict[str, tuple[str, Vector]] = {}
        """uid of a RayCluster that exists -> (RayJob, what its pods ask for)"""
        self.most = 0
        self.over: list[str] = []
        """What was over a limit at some moment"""
        self.limits: dict[str, Vector] = {}
        self.paths: dict[str, list[str]] = {}
        """namespace -> paths of its leaf and every ancestor"""
        self._read(root, [])

    def _read(self, node: TreeNodeSpec, above: list[str]) -> None:
        path = f"{above[-1]}/{node.name}" if above else "root"
        self.limits[path] = {name: parse_quantity(text, name) for name, text in node.max.items()}
        for namespace in node.namespaces:
            self.paths[namespace] = [*above, path]
        for child in node.children:
            self._read(child, [*above, path])

    def _heard(self, kind: str, cluster: Object) -> None:
        meta = cluster["metadata"]
        owner = meta["ownerReferences"][0]["name"]
        job = f"{meta['namespace']}/{owner}"
        if kind == "ADDED":
            self.started[job] += 1
            self.order.append(job)
            self.live[meta["uid"]] = (job, need(cluster["spec"]))
        elif kind == "DELETED":
            self.live.pop(meta["uid"], None)
        self.most = max(self.most, len(self.live))
        self._add_up(job)

    def _add_up(self, because: str) -> None:
        used: dict[str, Vector] = {}
        for job, asked in self.live.values():
            for path in self.paths.get(job.partition("/")[0], ()):
                add_into(used.setdefault(path, {}), asked)
        for path, amounts in used.items():
            for name, amount in amounts.items():
                limit = self.limits[path].get(name)
                if limit is not None and amount > limit:
                    self.over.append(
                        f"{path} {name} {amount} of {limit} when {because} changed: {sorted(self.live.values())}"
                    )

    async def clean(self, *jobs: str, times: int = 1) -> None:
        """Each of these RayJobs was started `times` times, no other was, and nothing was ever over quota."""
        await self.follow.caught_up()
        assert not self.over, self.over[0]
        assert self.started == Counter(dict.fromkeys(jobs, times)), self.started


def need(spec: Object) -> Vector:
    """What the pods of a RayCluster ask for: head and workers."""
    total = _ask(spec["headGroupSpec"]["template"])
    for group in spec.get("workerGroupSpecs") or ():
        add_into(total, scaled(_ask(group["template"]), group.get("replicas", 0)))
    return total


def _ask(template: Object) -> Vector:
    total: Vector = {}
    for container in template["spec"]["containers"]:
        requests = (container.get("resources") or {}).get("requests") or {}
        add_into(total, {name: parse_quantity(str(text), name) for name, text in requests.items()})
    return total
