"""Jobs of a state file: the request of each pod, the nodes of running pods, and the pods that start together.

A job's pods beyond its minimum become separate units, which start after the others and are evicted first.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from muster.core.objects.gpushares import thousandths
from muster.core.objects.meta import KAI_PREEMPTIBILITY, KAI_QUEUE, KEPT
from muster.core.placement.devices import DEVICE, pick, pods_fitting, share_on, shares_gpu
from muster.core.quota.demand import CLASSES, PREEMPTIBILITY
from muster.model.placing import GPU, WHOLE, PodRules, Toleration, Topology
from muster.model.workload import NodeState
from muster.tracesim.decide.document import JobEntry, PodEntry
from muster.tracesim.decide.queues import QUOTA_LABEL, Leaf, Leaves
from muster.tracesim.decide.situation import SituationJob, SituationPod, SituationUnit, StateFileError
from muster.tracesim.decide.values import MAX_SECONDS, MIB, at_least, exact, named, seconds, shown, unique

PREEMPTIBLE_LABEL = KEPT[2]
MAX_PODS = 100_000
LATER_MS = 10 * MAX_SECONDS
"""Added to the age of pods beyond a gang's minimum, and once more from the second on: of one priority every gang comes
before every such pod, and a gang that has none of them before one that has."""


class JobReader:
    """Reads jobs one after the other; keeps which devices running pods have taken."""

    def __init__(self, nodes: dict[str, NodeState], leaves: Leaves) -> None:
        self._nodes = nodes
        self._leaves = leaves
        self._left: dict[str, dict[int, int]] = {}
        """Node -> shared device -> what is left of it."""
        self._whole: dict[str, int] = {}
        """Node -> devices that running pods have whole."""
        self._pods = 0

    def job(self, entry: JobEntry, index: int) -> SituationJob:
        where = f"jobs[{index}] {entry.name!r}"
        named(f"jobs[{index}]", entry.name)
        if not entry.pods:
            raise StateFileError(f"{where}: pods is empty; a job has at least one pod")
        self._pods += len(entry.pods)
        if self._pods > MAX_PODS:
            raise StateFileError(f"{where}: the file has more than {MAX_PODS} pods")
        leaf = self._leaves.leaf(entry.queue, where)
        priority = _priority(entry.priority, where)
        created = index * 1000 if entry.created_s is None else seconds(entry.created_s, f"{where}: created_s")
        names = [pod.name or f"{entry.name}-{number}" for number, pod in enumerate(entry.pods)]
        unique(f"pod of {where}", names)
        levels = {group.name: Topology(group.topology.required, group.topology.preferred) for group in entry.subgroups}
        pods = [
            replace(pod, rules=replace(pod.rules, topology=levels.get(pod.subgroup, Topology())))
            for pod in (self._pod(entry_pod, name, where) for entry_pod, name in zip(entry.pods, names, strict=True))
        ]
        topology = Topology(entry.topology.required, entry.topology.preferred)
        units = _units(entry, pods, created, where)
        labels = self._labels(leaf, entry.preemptible)
        return SituationJob(entry.name, leaf.path, leaf.namespace, labels, priority, units, topology)

    def _labels(self, leaf: Leaf, preemptible: bool | None) -> dict[str, str]:
        """The labels that lead a job to its queue, and the label for preemptibility."""
        if self._leaves.kai:
            firm = {} if preemptible is None else {KAI_PREEMPTIBILITY: PREEMPTIBILITY[0 if preemptible else 1]}
            return {KAI_QUEUE: leaf.label} | firm
        labels = {QUOTA_LABEL: leaf.label} if leaf.label else {}
        return labels | ({PREEMPTIBLE_LABEL: "false"} if preemptible is False else {})

    def _pod(self, entry: PodEntry, name: str, job: str) -> SituationPod:
        where = f"{job}, pod {name!r}"
        named(job, name)
        at_least(where, 0, gpus=entry.gpus, cpu_milli=entry.cpu_milli, memory_mib=entry.memory_mib)
        rules = PodRules(
            node_labels=dict(sorted(entry.node_selector.items())),
            tolerations=tuple(Toleration(t.key, t.operator, t.value, t.effect) for t in entry.tolerations),
        )
        share, memory, count = self._shares(entry, where)
        rules = replace(rules, share=share, gpu_memory=memory, devices=count)
        request = {"cpu": entry.cpu_milli, "memory": entry.memory_mib * MIB, GPU: entry.gpus * WHOLE}
        need = dict(request)
        if share:
            need[GPU] = share * count
        elif memory:
            need[GPU] = WHOLE * count
        node, devices, started = self._place(entry, rules, where)
        return SituationPod(
            name,
            {key: amount for key, amount in sorted(request.items()) if amount},
            {key: amount for key, amount in sorted(need.items()) if amount},
            rules,
            entry.subgroup,
            node,
            devices,
            started,
        )

    @staticmethod
    def _shares(entry: PodEntry, where: str) -> tuple[int, int, int]:
        """(thousandths, MiB, devices) of a pod on shared devices."""
        count = entry.devices if isinstance(entry.devices, int) else len(entry.devices)
        if count < 1:
            raise StateFileError(f"{where}: devices is {count}; a share is of at least one device")
        sharing = entry.gpu_fraction is not None or entry.gpu_memory_mib is not None
        if entry.gpu_fraction is not None and entry.gpus:
            raise StateFileError(f"{where}: has gpus and gpu_fraction; take one of them")
        if entry.gpu_memory_mib is not None and (entry.gpus or entry.gpu_fraction is not None):
            raise StateFileError(f"{where}: has gpu_memory_mib and gpus or gpu_fraction; take one of them")
        if not sharing and isinstance(entry.devices, int) and count > 1:
            raise StateFileError(f"{where}: has devices and no share of them; add gpu_fraction or gpu_memory_mib")
        if entry.gpu_memory_mib is not None:
            at_least(where, 1, gpu_memory_mib=entry.gpu_memory_mib)
            return 0, entry.gpu_memory_mib, count
        if entry.gpu_fraction is None:
            return 0, 0, 1
        amount = exact(entry.gpu_fraction, f"{where}: gpu_fraction")
        if not 0 < amount < 1:
            raise StateFileError(
                f"{where}: gpu_fraction is {shown(entry.gpu_fraction)}; write a number above 0 and below 1"
            )
        return thousandths(str(amount)), 0, count

    def _place(self, entry: PodEntry, rules: PodRules, where: str) -> tuple[str, tuple[int, ...], int]:
        """(node, shared devices, start) of a running pod."""
        node = self._node(entry, where)
        if node is None:
            return "", (), 0
        started = 0 if entry.started_s is None else seconds(entry.started_s, f"{where}: started_s")
        if shares_gpu(rules):
            return entry.node, self._shared(entry, rules, node, where), started
        whole = self._free(node)
        if entry.gpus > whole:
            raise StateFileError(f"{where}: has {entry.gpus} GPUs, and node {entry.node!r} has {whole} free for it")
        self._whole[entry.node] = self._whole.get(entry.node, 0) + entry.gpus
        return entry.node, (), started

    def _free(self, node: NodeState) -> int:
        """Devices of a node that no pod has yet."""
        name = node.ref.name
        return node.allocatable.get(GPU, 0) // WHOLE - self._whole.get(name, 0) - len(self._left.get(name, ()))

    def _node(self, entry: PodEntry, where: str) -> NodeState | None:
        """The node of a running pod; None for a pending pod."""
        if entry.phase == "Pending":
            if isinstance(entry.devices, tuple):
                message = f"devices is {list(entry.devices)}, and it is Pending; write how many, which ones is decided"
                raise StateFileError(f"{where}: {message}")
            if entry.node or entry.started_s is not None:
                field = "node" if entry.node else "started_s"
                raise StateFileError(f"{where}: is Pending and has {field}; leave it out, or write phase: Running")
            return None
        if not entry.node:
            raise StateFileError(f"{where}: is Running and has no node; say on which it runs")
        node = self._nodes.get(entry.node)
        if node is None:
            raise StateFileError(f"{where}: runs on node {entry.node!r}, which is not in nodes")
        return node

    def _shared(self, entry: PodEntry, rules: PodRules, node: NodeState, where: str) -> tuple[int, ...]:
        """The devices of a running pod that shares: the named devices, else the fullest devices with room."""
        share, whole = share_on(rules, node.labels), self._free(node)
        if share > DEVICE:
            text = "has not that much memory, or does not say how much"
            raise StateFileError(f"{where}: a device of node {entry.node!r} {text}")
        left = self._left.setdefault(entry.node, {})
        if isinstance(entry.devices, tuple):
            devices, total = entry.devices, node.allocatable.get(GPU, 0) // WHOLE
            if len(set(devices)) < len(devices) or not all(0 <= device < total for device in devices):
                which = f" are not devices 0 to {total - 1}, each once" if total else f", and {entry.node!r} has none"
                raise StateFileError(f"{where}: devices {shown(list(devices))}{which}")
            opened = sum(device not in left for device in devices)
            if opened > whole or any(left.get(device, DEVICE) < share for device in devices):
                raise StateFileError(f"{where}: devices {list(devices)} of node {entry.node!r} have no room for it")
        elif pods_fitting(left.values(), whole, share, rules.devices) < 1:
            raise StateFileError(f"{where}: no device of node {entry.node!r} has room for it")
        else:
            devices = pick(left, whole, share, rules.devices, 1)[0]
        for device in devices:
            left[device] = left.get(device, DEVICE) - share
        return devices


def _units(entry: JobEntry, pods: Sequence[SituationPod], created: int, where: str) -> tuple[SituationUnit, ...]:
    """The units of a job: the pods that start together, and each later pod."""
    least = _minimums(entry, pods, where)
    core: list[SituationPod] = []
    for name, minimum in least.items():
        members = [pod for pod in pods if pod.subgroup == name]
        core += sorted(members, key=lambda pod: not pod.node)[:minimum]
    if any(pod.node for pod in pods):
        # It has started: what is missing of it is placed pod by pod, and what runs is not undone.
        started = [pod for pod in core if pod.node] or [pod for pod in pods if pod.node]
        core = started
    names = {pod.name for pod in core}
    rest = [pod for pod in pods if pod.name not in names]
    units = (
        [SituationUnit(entry.name, entry.name, tuple(pod for pod in pods if pod.name in names), True, created)]
        if core
        else []
    )
    for pod in rest:
        before = min(len(units), 2)
        uid = f"{entry.name}.{pod.name}"
        units.append(SituationUnit(uid, entry.name, (pod,), not before, created + before * LATER_MS))
    return tuple(units)


def _minimums(entry: JobEntry, pods: Sequence[SituationPod], where: str) -> dict[str, int]:
    """{subgroup: how many of its pods the job starts with}"""
    if not entry.subgroups:
        named = next((pod for pod in pods if pod.subgroup), None)
        if named is not None:
            raise StateFileError(f"{where}, pod {named.name!r}: subgroup {named.subgroup!r} is not in subgroups")
        minimum = len(pods) if entry.min_member is None else entry.min_member
        if not 0 <= minimum <= len(pods):
            raise StateFileError(f"{where}: min_member is {minimum}, and it has {len(pods)} pods")
        return {"": minimum}
    unique(f"subgroup of {where}", (group.name for group in entry.subgroups))
    least = {group.name: group.min_member for group in entry.subgroups}
    odd = next((pod for pod in pods if pod.subgroup not in least), None)
    if odd is not None:
        message = f"subgroup is {odd.subgroup!r}; write one of {', '.join(least)}"
        raise StateFileError(f"{where}, pod {odd.name!r}: {message}")
    for name, minimum in least.items():
        count = sum(pod.subgroup == name for pod in pods)
        if not 0 <= minimum <= count:
            raise StateFileError(f"{where}, subgroup {name!r}: min_member is {minimum}, and it has {count} pods")
    if entry.min_member is not None and entry.min_member != sum(least.values()):
        total = sum(least.values())
        raise StateFileError(f"{where}: min_member is {entry.min_member}, and its subgroups have {total} together")
    return least


def _priority(value: int | str, where: str) -> int:
    if isinstance(value, int):
        return value
    if value not in CLASSES:
        raise StateFileError(f"{where}: priority {shown(value)} is neither a number nor one of {', '.join(CLASSES)}")
    return CLASSES[value]
