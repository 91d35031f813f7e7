"""PodDisruptionBudgets: whether the pods of a job may go before the job is suspended to release quota.

The API server does not keep a controller from deleting the pods of a suspended job, nor the workers of a Ray cluster
that has to shrink. So the pods are counted first: no more pods of a budget go than the budget allows. Pods of other
workloads that are being suspended or removed count as gone while the pods still exist: the same budget covers these
pods, and the status of the budget does not show the loss yet.

The eviction subresource of pods is no alternative for jobs: a Job counts an evicted pod as a failure of the Job.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import msgspec
from msgspec import Struct, field

from muster.core.actuation.orders import Effect, Order, RetryLater, failed, refused, said_by
from muster.core.objects.meta import Condition, Meta, UnreadableError, decode, is_true
from muster.core.objects.podspec import RawLabelSelector, selector_of
from muster.core.placement.matching import selects
from muster.model.problem import problem
from muster.model.problemcodes import WriteCode


class _PodStatus(Struct, frozen=True):
    phase: str = ""
    conditions: tuple[Condition, ...] | None = None


class _Pod(Struct, frozen=True):
    metadata: Meta
    status: _PodStatus = _PodStatus()

    @property
    def counts(self) -> bool:
        """Whether a budget counts the pod as healthy."""
        return is_true(self.status.conditions, "Ready") and not self.metadata.deletion_timestamp


class _Pods(Struct, frozen=True):
    items: tuple[_Pod, ...] = ()


class _BudgetSpec(Struct, frozen=True):
    selector: RawLabelSelector | None = None


class _BudgetStatus(Struct, frozen=True, rename="camel"):
    disruptions_allowed: int = 0
    desired_healthy: int = 0


class _Budget(Struct, frozen=True):
    metadata: Meta
    spec: _BudgetSpec = _BudgetSpec()
    status: _BudgetStatus = _BudgetStatus()


class _Budgets(Struct, frozen=True):
    items: tuple[msgspec.Raw, ...] = ()


class PodsLeaving(Struct, frozen=True):
    """The pods to go: the victim's pods, and the pods of other workloads that leave earlier."""

    uid: str
    before: Collection[str]
    """uids of workloads that are being suspended by an earlier order"""
    children: Mapping[str, str] = field(default_factory=dict)
    """uid of a child object of a workload -> uid of the workload"""
    pods: Collection[str] = ()
    """uids of the pods that go, where the other pods of the workload stay"""
    pods_before: Collection[str] = ()
    """uids of single pods of other workloads that are going"""


Stop = Effect | RetryLater


def read_budgets(order: Order, status: int, body: bytes) -> list[_Budget] | Stop:
    """The budgets of a namespace. A server without the API of budgets has none."""
    if status == 404:
        return []
    if status != 200:
        return _unread(order, status, body)
    try:
        listed: _Budgets = decode(body, _Budgets)
        return [decode(bytes(raw), _Budget) for raw in listed.items]
    except UnreadableError as err:
        return failed(order, "refused", problem("", "budgets_unreadable", err.problem))


def refusing_budget(
    order: Order, budgets: list[_Budget], leaving: PodsLeaving, status: int, body: bytes
) -> Stop | None:
    """Why the job stays: the first budget that allows fewer pods to go; None when every budget allows the loss."""
    if status != 200:
        return _unread(order, status, body)
    try:
        pods: _Pods = decode(body, _Pods)
    except UnreadableError as err:
        return failed(order, "refused", problem("", "pods_unreadable", err.problem))
    owners = _owners(pods, leaving)
    for budget in sorted(budgets, key=lambda budget: budget.metadata.name):
        selector = selector_of(budget.spec.selector)
        chosen = [pod for pod in pods.items if pod.counts and selects(selector, pod.metadata.labels)]
        whole = not leaving.pods
        own = sum(
            owners.get(pod.metadata.uid) == leaving.uid if whole else pod.metadata.uid in leaving.pods for pod in chosen
        )
        gone = sum(
            owners.get(pod.metadata.uid, "") in leaving.before or pod.metadata.uid in leaving.pods_before
            for pod in chosen
        )
        # The status may be older than the end of some pods.
        allowed = min(budget.status.disruptions_allowed, len(chosen) - budget.status.desired_healthy)
        if own and own > allowed - gone:
            going = problem("", "pods_going", count=gone) if gone else None
            code: WriteCode = "budget_of_job" if whole else "budget_of_workers"
            named = budget.metadata.name
            why = problem("", code, going, budget=named, allowed=max(allowed, 0), count=own)
            return failed(order, "refused", why)
    return None


def _owners(pods: _Pods, leaving: PodsLeaving) -> dict[str, str]:
    """The workload of each pod, both by uid; executors belong to the workload of their driver."""
    known = {pod.metadata.uid: pod.metadata.controller.uid for pod in pods.items}
    return {uid: owner for uid in known if (owner := next(_above(uid, known, leaving), ""))}


def _above(uid: str, pods: Mapping[str, str], leaving: PodsLeaving) -> Iterator[str]:
    """The workloads above a pod, at most four levels up."""
    for _ in range(4):
        uid = pods.get(uid) or leaving.children.get(uid, "")
        if uid == leaving.uid or uid in leaving.before:
            yield uid


def _unread(order: Order, status: int, body: bytes) -> Stop:
    """The answer to a list that failed: the job is suspended only after a complete list."""
    return RetryLater("forbidden", said_by(body)) if status == 403 else refused(order, status, body)
