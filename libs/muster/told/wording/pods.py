"""Why pods do not run, in words: the pod, the trouble, and the way out."""

from __future__ import annotations

from collections.abc import Callable

from muster.model.closed import total
from muster.model.podtrouble import PodCode, PodTrouble
from muster.model.text import counted, span
from muster.told.codes.codetable import HeldUp
from muster.told.wording.explain import Reason

FILE = "libs/muster/told/wording/pods.py"


def _exited(trouble: PodTrouble) -> str:
    code = f" with exit code {trouble.exit_code}" if trouble.exit_code is not None else ""
    return f"container {trouble.container} ended{code}" if trouble.container else f"a container ended{code}"


def _no_node(trouble: PodTrouble) -> str:
    causes = ", ".join(
        f"{refusal.nodes} {refusal.text}" if trouble.nodes else refusal.text for refusal in trouble.refused
    )
    if not trouble.nodes:
        return f"kube-scheduler finds no node for it{f': {causes}' if causes else ''}"
    return f"0/{trouble.nodes} nodes are available{f': {causes}' if causes else ''}"


def _said(trouble: PodTrouble) -> str:
    return f" ({trouble.word})" if trouble.word else ""


WORDS: dict[PodCode, tuple[Callable[[PodTrouble], str], str]] = {
    "OOMKilled": (
        lambda trouble: f"container {trouble.container} was killed because it used more memory than its limit",
        "raise the memory limit of the container",
    ),
    "Evicted": (
        lambda _: "its node evicted it",
        "look at the Events of the pod: memory or disk of the node was short, or a pod of higher priority came",
    ),
    "NodeLost": (lambda _: "its node was shut down or is lost", "look at the node"),
    "DeadlineExceeded": (lambda _: "it ran longer than its activeDeadlineSeconds", "raise the deadline"),
    "ContainerFailed": (_exited, "read the logs of the container"),
    "PodFailed": (lambda trouble: f"the pod failed{_said(trouble)}", "read the Events of the pod"),
    "CrashLoopBackOff": (
        lambda trouble: f"{_exited(trouble)} and is started again with pauses",
        "read the logs of the container: kubectl logs --previous",
    ),
    "ImagePullBackOff": (
        lambda trouble: (
            f"the image {trouble.image or 'of container ' + trouble.container} cannot be pulled{_said(trouble)}"
        ),
        "correct the name of the image or the pull secret",
    ),
    "ContainerNotCreated": (
        lambda trouble: f"container {trouble.container} cannot be created{_said(trouble)}",
        "look for a ConfigMap, Secret or volume that does not exist: kubectl describe pod names it",
    ),
    "PodsRefused": (
        lambda trouble: f"the cluster refuses its pods: {trouble.said!r}",
        "change what the refusal names: its controller tries again",
    ),
    "Unschedulable": (_no_node, "free or add nodes, or change what the pods ask of them"),
    "InitWaiting": (
        lambda trouble: f"init container {trouble.container} has not ended",
        "wait, or read the logs of the init container",
    ),
}
"""The trouble, and the way out."""

total(WORDS, PodCode, f"{FILE} (WORDS)")


def matter(trouble: PodTrouble) -> str:
    """``the image x cannot be pulled (ErrImagePull)``."""
    return WORDS[trouble.code][0](trouble)


def placed(name: str, node: str) -> str:
    """The text of a pod without trouble."""
    return f"Pod {name} is on node {node}"


def reason(held: HeldUp) -> Reason:
    """One code and one sentence, without a span of time: objects are not written as time passes."""
    trouble, way_out = held.first.trouble, WORDS[held.code][1]
    more = f" ({counted(held.pods - 1, 'more pod')} with the same cause)" if held.pods > 1 else ""
    matters = matter(trouble)
    whose = f"Pod {held.first.name}{more}: {matters}" if held.first.name else f"{matters[0].upper()}{matters[1:]}"
    text = f"{whose}; {way_out}"
    return Reason(held.code, f"{held.code}:{text}", text)


def since(held: HeldUp, now: int) -> str:
    """The reason for people, with the duration of the trouble."""
    ago = f" for {span(max(0, now - held.first.since) // 1000 * 1000)}" if not held.first.over else ""
    return f"{held.code}{ago}: {reason(held).text}"
