"""How the simulated operator is set up, and what users write on a RayJob to say how its Ray job goes."""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct

from muster.fakecluster.apiserver.status import Obj

RUNTIME = "sim.muster.dev/runtime"
"""Annotation on a RayJob: how long its Ray job runs, e.g. ``20s``, ``1m30s``, ``500ms``."""
OUTCOME = "sim.muster.dev/outcome"
"""Annotation on a RayJob: how its Ray job ends."""
RUN_FOR = "sim.muster.dev/run-for"
"""Annotation on a pod: it succeeds after running that long."""
FAIL_AFTER = "sim.muster.dev/fail-after"
"""Annotation on a pod: it fails after running that long."""
START_AFTER = "sim.muster.dev/start-after"
"""Annotation on a pod: how long it takes from bound to running."""
STOP_AFTER = "sim.muster.dev/stop-after"
"""Annotation on a pod: how long it takes from deleted to gone."""

Outcome = Literal["succeeded", "failed", "stopped", "submission-failed"]
"""``submission-failed``: the submitter pods fail, the Ray job never starts."""

_OUTCOMES: tuple[Outcome, ...] = ("succeeded", "failed", "stopped", "submission-failed")
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?(?:(\d+)ms)?")


class OperatorSettings(Struct, frozen=True, kw_only=True):
    """The operator's settings; the defaults are KubeRay's where it has such a setting."""

    version: Literal["1.6", "1.7"] = "1.7"
    """Of KubeRay. 1.6 knows no suspension of a RayService, but passes that of its ``rayClusterConfig`` on."""
    runtime_ms: int = 20_000
    """Of Ray jobs that do not say."""
    run_for: str = RUN_FOR
    """The annotation of submitter pods that makes what plays the kubelet end them; KWOK's stages in tests have
    another name for it."""
    fail_after: str = FAIL_AFTER
    submitter_pods: bool = True
    """False where no kubelet runs pods of Jobs: then the operator itself reports the submitter Job as it should be."""
    pods: bool = True
    """False for simulations that ask nothing of pods: clusters have none, and are ready after ``ready_ms``."""
    ready_ms: int = 2_000
    services: bool = True
    """Make head services, and the accounts and roles of the autoscaler."""
    init_containers: bool = True
    """Add the container that waits for the head to worker pods."""
    requeue_ms: int = 3_000
    """Between looks at a RayJob that waits for a change without an event."""
    submitter_grace_ms: int = 30_000
    """For the Ray job's end to show after the submitter's."""
    transition_grace_ms: int = 300_000
    """For the RayJob to end after its Ray job did."""
    autoscaler_version: Literal["v1", "v2"] = "v2"
    """Of clusters that do not say."""
    batch_scheduler: Literal["", "kai-scheduler"] = ""
    """``batchScheduler.name``: pods get this schedulerName, and the queue that the label of their cluster names."""


def duration_ms(text: str) -> int:
    """Ms of a duration such as ``1m30s``; raises ValueError with the text when it is none."""
    match = _DURATION.fullmatch(text)
    if not text or match is None:
        raise ValueError(f"{text!r} is not a duration such as 20s, 1m30s or 500ms")
    hours, minutes, seconds, millis = (part or "0" for part in match.groups())
    return (int(hours) * 60 + int(minutes)) * 60_000 + round(float(seconds) * 1000) + int(millis)


def runtime_ms(job: Obj, settings: OperatorSettings) -> int:
    """How long the RayJob's Ray job runs."""
    text = (job["metadata"].get("annotations") or {}).get(RUNTIME)
    return settings.runtime_ms if text is None else duration_ms(text)


def outcome(job: Obj) -> Outcome:
    """How the RayJob's Ray job ends; raises ValueError for a word that means nothing."""
    text = (job["metadata"].get("annotations") or {}).get(OUTCOME, "succeeded")
    for known in _OUTCOMES:
        if text == known:
            return known
    raise ValueError(f"{OUTCOME}: {text!r} is none of {', '.join(_OUTCOMES)}")
