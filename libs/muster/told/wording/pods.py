"""Why pods do not run or wait for quota, in words: the pod, the trouble, and the way out."""

from __future__ import annotations

from collections.abc import Callable

from muster.events import gangs
from muster.model.closed import total
from muster.model.language import listed, say, upper
from muster.model.podtrouble import PodCode, PodTrouble
from muster.model.problem import problem
from muster.model.problemcodes import ProblemCode
from muster.model.text import counted, span
from muster.told.codes.codetable import HeldUp
from muster.told.codes.happenings import Happening
from muster.told.wording import explain, problems
from muster.told.wording.explain import Reason

FILE = "libs/muster/told/wording/pods.py"


def _exited(trouble: PodTrouble) -> str:
    code = say(" with exit code {exit_code}", exit_code=trouble.exit_code) if trouble.exit_code is not None else ""
    return (
        say("container {container} ended{code}", container=trouble.container, code=code)
        if trouble.container
        else say("a container ended{code}", code=code)
    )


def _no_node(trouble: PodTrouble) -> str:
    causes = listed(f"{refusal.nodes} {refusal.text}" if trouble.nodes else refusal.text for refusal in trouble.refused)
    if not trouble.nodes:
        return say(
            "kube-scheduler finds no node for it{causes}", causes=say(": {causes}", causes=causes) if causes else ""
        )
    return say(
        "0/{nodes} nodes are available{causes}",
        nodes=trouble.nodes,
        causes=say(": {causes}", causes=causes) if causes else "",
    )


def _said(trouble: PodTrouble) -> str:
    return say(" ({word})", word=trouble.word) if trouble.word else ""


EVICTED_BY: dict[str, str] = {
    "": "its node evicted it",
    "EvictionByEvictionAPI": "it was evicted through the API: a drain of its node, a descheduler, or a person",
    "PreemptionByScheduler": "kube-scheduler gave its place to a pod of higher priority",
}
"""{the reason of a pod's condition DisruptionTarget: the words}; empty: any other reason."""

WORDS: dict[PodCode, tuple[Callable[[PodTrouble], str], str]] = {
    "OOMKilled": (
        lambda trouble: say(
            "container {container} was killed because it used more memory than its limit", container=trouble.container
        ),
        "raise the memory limit of the container",
    ),
    "Evicted": (
        lambda trouble: say(EVICTED_BY.get(trouble.word, EVICTED_BY[""])),
        "look at the Events of the pod: memory or disk of the node was short, or a pod of higher priority came",
    ),
    "NodeLost": (lambda _: say("its node was shut down or is lost"), "look at the node"),
    "DeadlineExceeded": (lambda _: say("it ran longer than its activeDeadlineSeconds"), "raise the deadline"),
    "ContainerFailed": (_exited, "read the logs of the container"),
    "PodFailed": (
        lambda trouble: (
            say("a user or the controller of the job deleted the pod")
            if trouble.word == "Deleted"
            else say("the pod failed{said}", said=_said(trouble))
        ),
        "read the Events of the pod",
    ),
    "CrashLoopBackOff": (
        lambda trouble: say("{exited} and is started again with pauses", exited=_exited(trouble)),
        "read the logs of the container: kubectl logs --previous",
    ),
    "ImagePullBackOff": (
        lambda trouble: say(
            "the image {image} cannot be pulled{said}",
            image=trouble.image or say("of container {container}", container=trouble.container),
            said=_said(trouble),
        ),
        "correct the name of the image or the pull secret",
    ),
    "ContainerNotCreated": (
        lambda trouble: say(
            "container {container} cannot be created{said}", container=trouble.container, said=_said(trouble)
        ),
        "look for a ConfigMap, Secret or volume that does not exist: kubectl describe pod names it",
    ),
    "PodsRefused": (
        lambda trouble: say("the cluster refuses its pods: {said}", said=repr(trouble.said)),
        "change what the refusal names: its controller tries again",
    ),
    "Unschedulable": (_no_node, "free or add nodes, or change what the pods ask of them"),
    "InitWaiting": (
        lambda trouble: say("init container {container} has not ended", container=trouble.container),
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
    return say("Pod {name} is on node {node}", name=name, node=node)


def reason(held: HeldUp) -> Reason:
    """One code and one sentence, without a span of time: objects are not written as time passes."""
    trouble, way_out = held.first.trouble, WORDS[held.code][1]
    told = matter(trouble)
    if not held.first.name:
        text = say("{matter}; {way_out}", matter=upper(told), way_out=say(way_out))
        return Reason(held.code, f"{held.code}:{text}", text)
    more = say(" ({pods} with the same cause)", pods=counted(held.pods - 1, "more pod")) if held.pods > 1 else ""
    text = say(
        "Pod {name}{more}: {matter}; {way_out}", name=held.first.name, more=more, matter=told, way_out=say(way_out)
    )
    return Reason(held.code, f"{held.code}:{text}", text)


def since(held: HeldUp, now: int) -> str:
    """The reason for people, with the duration of the trouble."""
    ago = say(" for {ago}", ago=span(max(0, now - held.first.since) // 1000 * 1000)) if not held.first.over else ""
    return say("{code}{ago}: {text}", code=held.code, ago=ago, text=reason(held).text)


def pods_proposed(event: gangs.PodsProposed, _around: Happening) -> str:
    """The pods that wait for quota."""
    return say(
        "the nodes have places for {pods}; quota is asked for",
        pods=counted(len(event.pods) + len(event.beside), "pod"),
    )


def pods_denied(event: gangs.PodsDenied, _around: Happening) -> str:
    """Why pods with places wait."""
    if event.short is None:
        code: ProblemCode = "queue_takes_no_pods" if event.unknown else "queue_paused"
        return problems.line(problem("", code, queue=event.queue))
    return explain.waiting_for_quota(event.short).text
