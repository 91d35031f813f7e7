"""A look at a RayJob: the observed objects, and the results so far."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from muster.fakecluster.apiserver.status import Obj
from muster.fakecluster.kuberay import words
from muster.fakecluster.kuberay.settings import OperatorSettings
from muster.fakecluster.operations import ApiOperation


class RayRun(Struct, frozen=True):
    """What Ray's dashboard says of a submitted Ray job."""

    status: str
    start: int
    """ms since the epoch."""
    end: int
    """When it ends, or ended."""
    message: str = ""


class RayJobSeen(Struct, frozen=True):
    """A RayJob and its existing children."""

    job: Obj
    cluster: Obj | None = None
    submitter: Obj | None = None
    """The Kubernetes Job that submits."""
    head_exists: bool = True
    run: RayRun | None = None
    """The Ray job, once it was submitted to the cluster that is there now."""


class RayJobPlan(Struct, frozen=True):
    """What to do about a RayJob."""

    operations: tuple[ApiOperation, ...] = ()
    again_ms: int | None = None
    submit: bool = False
    """Submit the Ray job through the dashboard (HTTPMode)."""


class RayJobStep:
    """A look at a RayJob: the observed objects, and the results so far."""

    def __init__(self, seen: RayJobSeen, now: int, settings: OperatorSettings) -> None:
        self.seen = seen
        self.now = now
        self.settings = settings
        self.spec: Obj = seen.job["spec"]
        self.status: Obj = dict(seen.job.get("status") or {})
        self.operations: list[ApiOperation] = []
        self.again_at: int | None = None
        self.submit = False

    @property
    def name(self) -> str:
        return str(self.seen.job["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.seen.job["metadata"]["namespace"])

    @property
    def mode(self) -> str:
        return str(self.spec.get("submissionMode") or words.K8S_JOB)

    @property
    def state(self) -> str:
        return str(self.status.get("jobDeploymentStatus", words.NEW))

    def set(self, **fields: Any) -> None:
        """Set fields of the status; None and empty texts take them out."""
        for key, value in fields.items():
            if value in (None, ""):
                self.status.pop(key, None)
            else:
                self.status[key] = value

    def fail(self, reason: str, message: str) -> None:
        self.set(jobDeploymentStatus=words.FAILED, reason=reason, message=message)

    def look_again(self, at: int) -> None:
        """Look again at ``at``, if nothing happens before."""
        self.again_at = at if self.again_at is None else min(self.again_at, at)
