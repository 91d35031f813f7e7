"""The fair shares of KAI queues as metrics: what each queue may have, keeps, uses and asks for."""

from __future__ import annotations

from collections.abc import Iterator

from muster.core.quota.ledger.kaishares import kai_shares
from muster.core.quota.ledger.ledger import Ledger
from muster.model.resources import in_bytes
from muster.telemetry.metrics import Labels, labels

EVERY_S = 15.0
"""Between two looks."""


def share_gauges(ledger: Ledger) -> Iterator[tuple[str, Labels, float]]:
    """(gauge, labels, value) of every queue and resource; cpu in cores, memory in bytes, devices in devices.

    Nothing where there are no KAI queues; ``muster_queue_keeps`` is left out for a queue that keeps all there is.
    """
    for path, divided in kai_shares(ledger).items():
        used = ledger.used.get(path, {})
        for name, found in divided.items():
            key, unit = labels(queue=path.partition("/")[2], resource=name), 1 if in_bytes(name) else 1000
            if ledger.rules_of(path).usage_window_ms:
                yield "muster_queue_used_lately", key, found.sharer.usage / 1_000_000
            yield "muster_queue_fair_share", key, found.share.amount / unit
            yield "muster_queue_used", key, used.get(name, 0) / unit
            yield "muster_queue_asked", key, found.sharer.request / unit
            if found.allocatable >= 0:
                yield "muster_queue_keeps", key, found.allocatable / unit
