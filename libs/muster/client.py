"""For programs of others: follow what Muster decides.

from muster.client import follow

async for told in follow("nats://127.0.0.1:4222", reader="my-team", types={"workload_admitted"}):
    print(told.id, told.event.workload.name, told.event.queue)
"""

from __future__ import annotations

from muster.bus.subscribing import FollowedEvent, follow

__all__ = ["FollowedEvent", "follow"]
