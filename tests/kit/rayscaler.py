"""Ray's autoscaler (v2) and what a head says, as far as they meet the API server: one tick at a time, nothing else.

It writes what the real one writes: ``replicas``, and all of ``scaleStrategy``, by a JSON patch that names the group by
its place and tests nothing. It never asks for more than ``maxReplicas`` as it reads it. Workers are pods that run.
"""

from __future__ import annotations

import json
from typing import Any

from msgspec import Struct, field

from muster.model.raydemand import RAY_UNIT, RayDemand, RayIdle, RayPlacementGroup, RayShape, Trouble
from muster.model.resources import parse_quantity

Object = dict[str, Any]
TICK_MS = 5_000


class Actor(Struct):
    """Something that wants room on a worker, and keeps it until it is told to end."""

    cpu: int = 1
    gang: str = ""
    """The placement group it is a bundle of."""
    on: str = ""
    """Its worker."""


class RayScaler(Struct):
    """One cluster's; it has one worker group that matters, the first."""

    idle_ms: int = 10_000
    actors: dict[str, Actor] = field(default_factory=dict)
    explicit: int = 0
    """CPUs that ``request_resources`` wants the cluster to have."""
    idle_since: dict[str, int] = field(default_factory=dict)
    leaving: set[str] = field(default_factory=set)
    live: list[str] = field(default_factory=list)
    """Names of the workers that run."""
    cpus: int = 1
    """Of one worker."""
    group: str = "small"
    version: str = "v2"
    session: str = "session"
    """Another one is another head."""
    stopped: bool = False
    tick_ms: int = 0
    """How long a tick takes, as who reads the head says."""
    trouble: Trouble = ""
    """What who reads the head says is wrong with it."""
    launching: int = 0
    """Launches that the autoscaler has open, and that come to nothing."""
    refused: int = 0
    """How often a pod was not made larger."""
    unused_since: int = 0
    """Since when no driver is there."""
    unpinned: set[str] = field(default_factory=set)
    """Workers on which tasks run and no actors."""

    def start(self, name: str, cpu: int = 1, gang: str = "") -> None:
        self.actors[name] = Actor(cpu, gang)

    def end(self, name: str) -> None:
        del self.actors[name]

    @property
    def busy(self) -> set[str]:
        """Pods that something runs on."""
        return {actor.on for actor in self.actors.values()} - {""}

    @property
    def waiting(self) -> list[str]:
        return [name for name, actor in self.actors.items() if not actor.on]

    def tick(self, cluster: Object, pods: list[Object], now: int) -> list[Object]:
        """The patch of one tick; empty when there is nothing to write."""
        self._look(pods, now)
        if self.stopped:
            return []
        largest = max(self.cpus, self._most(cluster))
        spec = cluster["spec"]["workerGroupSpecs"][0]
        hosts = max(spec.get("numOfHosts", 1), 1)
        mine = [pod for pod in pods if pod["metadata"]["labels"].get("ray.io/node-type") == "worker"]
        least, most = spec.get("minReplicas", 0), spec["maxReplicas"]
        now_there = max(spec.get("replicas") or 0, least, -(-len(mine) // hosts))
        named = (spec.get("scaleStrategy") or {}).get("workersToDelete") or []
        if any(pod["metadata"]["name"] in named for pod in mine):
            return []  # What was told to go is still there.
        surplus = max(-(-len(mine) // hosts) - most, 0) * hosts  # by the nodes it has, whatever ``replicas`` says
        doomed = sorted(self.live, key=lambda name: (-self._idle_for(name, now), name))[:surplus]
        wanted = sum(self.actors[name].cpu for name in self.waiting if self.actors[name].cpu <= self.cpus)
        huge = sum(1 for name in self.waiting if self.cpus < self.actors[name].cpu <= largest)
        wanted = max(wanted, self.explicit - now_there * hosts * self.cpus)
        coming = (now_there * hosts - len(self.live)) * self.cpus
        target = now_there + max(-(-(wanted - max(coming, 0)) // (self.cpus * hosts)), 0)
        target += max(huge - self._coming(pods), 0)
        keep = max(least, -(-self.explicit // (self.cpus * hosts)))
        if not wanted and not huge:
            idle = [name for name in self.live if self._idle_for(name, now) >= self.idle_ms]
            doomed = [*doomed, *_whole(idle, mine, hosts)][: max(now_there - keep, 0) * hosts]
        target = min(target, most)
        at = "/spec/workerGroupSpecs/0"
        ops = []
        if doomed:
            self.leaving |= set(doomed)
            target = max(now_there - len(doomed) // hosts, least)
            ops.append({"op": "replace", "path": f"{at}/scaleStrategy", "value": {"workersToDelete": doomed}})
        elif named:
            ops.append({"op": "replace", "path": f"{at}/scaleStrategy", "value": {"workersToDelete": []}})
        if target != (spec.get("replicas") or 0):
            ops.append({"op": "replace", "path": f"{at}/replicas", "value": target})
            return ops
        return ops if doomed else []

    def resizes(self, cluster: Object, pods: list[Object], now: int) -> list[str]:
        """Pods that are made as large as annotation ``ray.io/ippr`` lets them: those that something waits for."""
        self._look(pods, now)
        most, used = self._most(cluster), dict.fromkeys(self.live, 0)
        if self.stopped:
            return []
        for actor in self.actors.values():
            if actor.on in used:
                used[actor.on] += actor.cpu
        sizes = {pod["metadata"]["name"]: cpus_of(pod) for pod in pods if pod["metadata"]["name"] in used}
        waiting = sorted((self.actors[name].cpu for name in self.waiting), reverse=True)
        found = []
        for name, size in sizes.items():
            fits = [cpu for cpu in waiting if size - used[name] < cpu <= most - used[name]]
            if size < most and fits and name not in self.leaving:
                waiting.remove(fits[0])
                found.append(name)
        return found

    def _most(self, cluster: Object) -> int:
        """CPUs that a worker may be grown to."""
        text = (cluster["metadata"].get("annotations") or {}).get("ray.io/ippr")
        group = json.loads(text).get("groups", {}).get(self.group) if text else None
        return int(parse_quantity(str(group["max-cpu"]), "cpu") // 1000) if group else 0

    def _coming(self, pods: list[Object]) -> int:
        """Workers that do not run yet, or have nothing to do: they may be grown."""
        return sum(1 for pod in pods if pod["metadata"]["name"] not in self.busy)

    def _idle_for(self, name: str, now: int) -> int:
        return now - self.idle_since[name] if name in self.idle_since else -1

    def _look(self, pods: list[Object], now: int) -> None:
        """What has room takes what waits; whoever was on a worker that is gone waits again."""
        self.live = [
            pod["metadata"]["name"]
            for pod in pods
            if pod["metadata"]["labels"].get("ray.io/node-type") == "worker"
            and (pod.get("status") or {}).get("phase") == "Running"
            and not pod["metadata"].get("deletionTimestamp")
        ]
        self.leaving &= set(self.live)
        free = {pod["metadata"]["name"]: cpus_of(pod) for pod in pods if pod["metadata"]["name"] in self.live}
        for actor in self.actors.values():
            if actor.on in free:
                free[actor.on] -= actor.cpu
            else:
                actor.on = ""
        gangs = {actor.gang for actor in self.actors.values() if actor.gang}
        for gang in sorted(gangs):
            members = [actor for actor in self.actors.values() if actor.gang == gang and not actor.on]
            room = [name for name, cpu in free.items() if cpu >= 1 and name not in self.leaving]
            if members and len(room) >= len(members):
                for actor, name in zip(members, room, strict=False):
                    actor.on, free[name] = name, free[name] - actor.cpu
        for actor in self.actors.values():
            if not actor.on and not actor.gang:
                actor.on = next(
                    (name for name, cpu in free.items() if cpu >= actor.cpu and name not in self.leaving), ""
                )
                if actor.on:
                    free[actor.on] -= actor.cpu
        busy = self.busy
        for name in list(self.idle_since):
            if name in busy or name not in self.live:
                del self.idle_since[name]
        for name in self.live:
            if name not in busy:
                self.idle_since.setdefault(name, now)

    def terminates(self, cluster: Object, now: int) -> str:
        """What is done about the whole cluster, as ``idleTerminationOptions`` say: Suspend, Delete, or nothing.

        Only drivers count: here whatever runs or waits has one.
        """
        options = cluster["spec"].get("idleTerminationOptions")
        if not options or self.actors or self.stopped or cluster["metadata"].get("deletionTimestamp"):
            self.unused_since = 0
            return ""
        self.unused_since = self.unused_since or now
        over = now - self.unused_since >= options["timeoutSeconds"] * 1_000
        return str(options.get("policy", "Suspend")) if over else ""

    def demand(self) -> RayDemand:
        """What the head says."""
        waiting = [self.actors[name] for name in self.waiting]
        sizes: dict[int, int] = {}
        for actor in waiting:
            if not actor.gang and actor.cpu <= self.cpus:
                sizes[actor.cpu] = sizes.get(actor.cpu, 0) + 1
        never: dict[int, int] = {}
        for actor in waiting:
            if actor.cpu > self.cpus:
                never[actor.cpu] = never.get(actor.cpu, 0) + 1
        gangs: dict[str, int] = {}
        for actor in waiting:
            if actor.gang:
                gangs[actor.gang] = gangs.get(actor.gang, 0) + 1
        busy = self.busy
        return RayDemand(
            session=self.session,
            version=self.version,
            pending=tuple(RayShape(_cpu(cpu), count) for cpu, count in sorted(sizes.items())),
            infeasible=tuple(RayShape(_cpu(cpu), count) for cpu, count in sorted(never.items())),
            placement_groups=tuple(
                RayPlacementGroup(name, "STRICT_SPREAD", (RayShape(_cpu(1), count),))
                for name, count in sorted(gangs.items())
            ),
            explicit=(RayShape(_cpu(1), self.explicit),) if self.explicit else (),
            joined={self.group: len(self.live) - len(self.leaving)} if self.live else {},
            idle=tuple(
                RayIdle(name, self.group, since) for name, since in sorted(self.idle_since.items()) if name not in busy
            ),
            pinned=tuple(sorted(busy - self.unpinned)),
            launching={self.group: self.launching} if self.launching else {},
            tick_ms=self.tick_ms,
            trouble=self.trouble,
        )


def _whole(names: list[str], pods: list[Object], hosts: int) -> list[str]:
    """Those of them whose replica is among them with all its hosts, replica by replica."""
    if hosts == 1:
        return names
    members: dict[str, list[str]] = {}
    for pod in pods:
        replica = pod["metadata"]["labels"].get("ray.io/worker-group-replica-name", "")
        members.setdefault(replica, []).append(pod["metadata"]["name"])
    return [name for each in members.values() if {*each} <= {*names} for name in each]


def cpus_of(pod: Object) -> int:
    """Whole CPUs of the first container."""
    return int(parse_quantity(str(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]), "cpu") // 1000)


def _cpu(count: int) -> dict[str, int]:
    return {"CPU": count * RAY_UNIT}
