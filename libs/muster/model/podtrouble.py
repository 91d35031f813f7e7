"""Why a pod does not run, in closed codes: what a pod's status says, bounded in size and free of secrets."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

PodCode = Literal[
    "OOMKilled",
    "Evicted",
    "NodeLost",
    "DeadlineExceeded",
    "ContainerFailed",
    "PodFailed",
    "CrashLoopBackOff",
    "ImagePullBackOff",
    "ContainerNotCreated",
    "PodsRefused",
    "Unschedulable",
    "InitWaiting",
]
"""Why a pod does not run, or failed."""


class NodesRefuse(Struct, frozen=True, gc=False, omit_defaults=True):
    """So many nodes refuse a pod for one reason, in the words of kube-scheduler."""

    nodes: int
    text: str


class PodTrouble(Struct, frozen=True, gc=False, omit_defaults=True):
    """The reason why a pod does not run. Numbers are from the time of the report."""

    code: PodCode
    word: str = ""
    """The word of Kubernetes, where it says more than the code: ``ErrImagePull``, ``CreateContainerConfigError``."""
    container: str = ""
    image: str = ""
    exit_code: int | None = None
    nodes: int = 0
    """How many nodes there are, where none takes it,"""
    refused: tuple[NodesRefuse, ...] = ()
    """and why they do not."""
    said: str = ""
    """The words of the refuser, of pods that the cluster does not let be made."""

    @property
    def gist(self) -> PodTrouble:
        """The trouble without the parts that change from try to try: the same gist is no news."""
        return replace(self, word="", nodes=0, refused=tuple(NodesRefuse(0, refusal.text) for refusal in self.refused))
