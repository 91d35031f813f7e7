"""The job that an argument names."""

from __future__ import annotations


def named(text: str) -> tuple[str, str]:
    """Kind, or nothing, and name of a job: ``tfjob/video/train``, ``rayjob/train``, ``video/train`` or ``train``.

    ``job/train`` is a name in the namespace ``job``: Jobs are named with their namespace, ``job/video/train``.
    """
    from muster.core.workloads.registry import KINDS

    first, _, rest = text.partition("/")
    kinds = {name: kind for kind, row in KINDS.items() for name in (kind.lower(), row.resource.plural)}
    kind = kinds.get(first.lower(), "")
    if kind and rest and ("/" in rest or kind != "Job"):
        return kind, rest
    return "", text
