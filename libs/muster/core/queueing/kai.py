"""Why a workload has no place in the KAI queues, as a reason and one sentence."""

from __future__ import annotations

from muster.core.objects.labels import KAI_QUEUE
from muster.core.quota.ledger import Ledger
from muster.events.decisions import RefusalReason
from muster.model.quota import KAI_ROOT
from muster.model.text import clean, shorten
from muster.model.workload import Workload

_SHOWN = 8


def kai_refusal(ledger: Ledger, workload: Workload, queue: str, quota: str) -> tuple[RefusalReason, str] | None:
    """Of a workload without a leaf; ``queue`` and ``quota``: what its labels name. None when KAI has no part in it."""
    namespace = workload.ref.namespace
    own = quota or ledger.leaf_of.get(namespace, "")
    if queue and own:
        whose = f"its label names quota {quota}" if quota else f"namespace {namespace} belongs to quota {own}"
        return (
            "two_quotas",
            f"label {KAI_QUEUE} names queue {queue}, and {whose} of an ElasticQuotaTree: it can be charged to one of "
            "them only; remove the label, or take the other one away",
        )
    if not queue:
        if quota:
            return None
        return (
            "queue_label_missing",
            f"Queue label missing from {workload.ref.kind}; pods will remain pending: add label {KAI_QUEUE} with one "
            f"of {_leaves(ledger)}",
        )
    shown = clean(shorten(queue, 64))
    disabled = ledger.trees[KAI_ROOT].disabled.get(queue)
    if disabled:
        return "queue_unknown", f"Queue '{shown}' is disabled: {disabled}"
    if queue not in ledger.queues:
        return (
            "queue_unknown",
            f"Queue '{shown}' does not exist: create it, or name one of {_leaves(ledger)} in label {KAI_QUEUE}",
        )
    below = ", ".join(path.rpartition("/")[2] for path in ledger.nodes[ledger.queues[queue]].children[:_SHOWN])
    return "queue_unknown", f"Queue '{shown}' has queues below it, and takes no work itself: name one of {below}"


def _leaves(ledger: Ledger) -> str:
    """The queues that take work."""
    names = sorted(name for name, path in ledger.queues.items() if not ledger.nodes[path].children)
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "") if names else "the queues you create"
