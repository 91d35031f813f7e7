"""PodDisruptionBudgets: whether the pods of a job may go before it is suspended to release quota.

Nothing on the API server keeps a controller from deleting the pods of a job that is suspended, or the workers that a
Ray cluster is to release. So they are counted first: of each budget no more go than it allows. Pods of others that
are being suspended or taken and are still there count as gone: they were counted against the same budget, and its
status does not show it yet.

Evictions by the pods' own subresource are no way: a Job counts an evicted pod as a failure of its own.
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
        """Whether a budget counts it as healthy."""
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
    """Whose pods are meant: the victim's, and those of others that leave before it."""

    uid: str
    before: Collection[str]
    """uids of workloads that are being suspended, and were ordered to go earlier"""
    children: Mapping[str, str] = field(default_factory=dict)
    """uid of an object that a workload runs through -> uid of the workload"""
    pods: Collection[str] = ()
    """uids of the pods that go, where the others of the workload stay"""
    pods_before: Collection[str] = ()
    """uids of single pods of others that are going"""


Stop = Effect | RetryLater


def read_budgets(order: Order, status: int, body: bytes) -> list[_Budget] | Stop:
    """The budgets of a namespace. A server without that API has none."""
    if status == 404:
        return []
    if status != 200:
        return _unread(order, status, body)
    try:
        found: _Budgets = decode(body, _Budgets)
        return [decode(bytes(each), _Budget) for each in found.items]
    except UnreadableError as err:
        return failed(order, "refused", problem("", "budgets_unreadable", err.problem))


def refusing_budget(
    order: Order, budgets: list[_Budget], leaving: PodsLeaving, status: int, body: bytes
) -> Stop | None:
    """Why the job stays: the first budget that does not allow as many of its pods to go; None when all do."""
    if status != 200:
        return _unread(order, status, body)
    try:
        pods: _Pods = decode(body, _Pods)
    except UnreadableError as err:
        return failed(order, "refused", problem("", "pods_unreadable", err.problem))
    owners = _owners(pods, leaving)
    for budget in sorted(budgets, key=lambda each: each.metadata.name):
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
        # The status may be from before pods went that are not there any more.
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
    """A list that did not come: no job is suspended before it does."""
    return RetryLater("forbidden", said_by(body)) if status == 403 else refused(order, status, body)
