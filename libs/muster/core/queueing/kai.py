"""Why a workload has no place in the KAI queues."""

from __future__ import annotations

from msgspec import structs

from muster.core.quota.ledger.ledger import Ledger
from muster.events.refusals import NAMES, Refusal
from muster.model.quota import KAI_ROOT
from muster.model.text import clean, shorten
from muster.model.workload import Workload


def kai_refusal(ledger: Ledger, workload: Workload, queue: str, quota: str) -> Refusal | None:
    """Of a workload without a leaf; ``queue`` and ``quota``: what its labels name. None when KAI has no part in it."""
    own = quota or ledger.leaf_of.get(workload.ref.namespace, "")
    shown = clean(shorten(queue, 64))
    if queue and own:
        return Refusal("two_quotas", "by_label" if quota else "by_namespace", shown, own)
    if not queue:
        return None if quota else _with_leaves(Refusal("queue_label_missing"), ledger)
    disabled = ledger.trees[KAI_ROOT].disabled.get(queue)
    if disabled is not None:
        return Refusal("queue_unknown", "queue_disabled", shown, problem=disabled)
    if queue not in ledger.queues:
        return _with_leaves(Refusal("queue_unknown", "queue_missing", shown), ledger)
    below = ledger.nodes[ledger.queues[queue]].children
    names = tuple(path.rpartition("/")[2] for path in below[:NAMES])
    return Refusal("queue_unknown", "queue_has_children", shown, names=names, count=len(below))


def _with_leaves(refusal: Refusal, ledger: Ledger) -> Refusal:
    """With the queues that take work."""
    names = sorted(name for name, path in ledger.queues.items() if not ledger.nodes[path].children)
    return structs.replace(refusal, names=tuple(names[:NAMES]), count=len(names))
