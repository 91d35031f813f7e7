"""Why a workload that asks to be queued is not: codes with names, and no sentence (see told.wording.reasons)."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from muster.model.problem import FieldProblem

RefusalReason = Literal[
    "cannot_suspend",
    "unbound",
    "unreadable",
    "no_tree",
    "held",
    "two_quotas",
    "queue_label_missing",
    "queue_unknown",
    "set_aside",
]
"""Why a suspended workload is not in a queue:

cannot_suspend  its controller could never suspend it again; ``problem`` names the field
unbound         no quota claims its namespace, or its label names none that takes work
unreadable      the object cannot be read; ``problem`` names the field
no_tree         no valid quota tree is in force
held            it is on hold; name and text: the user and the reason
two_quotas      its label names a KAI queue, and an ElasticQuotaTree claims it as well
queue_label_missing  there are KAI queues, and no label and no namespace leads it to one
queue_unknown   the KAI queue its label names does not exist, is disabled, or is no leaf
set_aside       it was tried ``count`` times in a row and answered the same way, though nothing had changed
"""

RefusalDetail = Literal[
    "",
    "namespace_unclaimed",
    "quota_missing",
    "quota_has_children",
    "quota_not_unique",
    "by_label",
    "by_namespace",
    "queue_missing",
    "queue_disabled",
    "queue_has_children",
]
"""What exactly, where a reason has several forms:

namespace_unclaimed  unbound: no leaf of tree ``name`` has its namespace
quota_missing        unbound: the tree has no quota ``name``
quota_has_children   unbound: the path ``name`` has children
quota_not_unique     unbound: ``count`` leaves are called ``name``: ``names``
by_label             two_quotas: queue ``name``, and quota ``other`` by label
by_namespace         two_quotas: queue ``name``, and quota ``other`` by its namespace
queue_missing        queue_unknown: there is no queue ``name``; ``names`` take work
queue_disabled       queue_unknown: queue ``name`` is not in force; ``problem`` says why
queue_has_children   queue_unknown: queue ``name`` has ``names`` below it
"""

NAMES = 8
"""How many names a refusal lists."""


class Refusal(Struct, frozen=True, gc=False, omit_defaults=True):
    """Why a workload is refused a place in a queue."""

    reason: RefusalReason
    detail: RefusalDetail = ""
    name: str = ""
    """Of the quota, queue, tree or author it is about; of the decision that answered it."""
    other: str = ""
    """Of the other quota; of the reason of that decision."""
    names: tuple[str, ...] = ()
    """What could be named instead: the first NAMES."""
    count: int = 0
    """How many there are in all; how often it was tried."""
    text: str = ""
    """In the words of others: the author of a hold."""
    problem: FieldProblem | None = None
    """The field that is wrong, or the rule that a queue breaks."""
