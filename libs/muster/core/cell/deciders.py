"""Every deciding stage, by name: one row each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from muster.core.autoscaling.bridge import AutoscalerBridge
from muster.core.gang.admitter import GangAdmitter
from muster.core.preemption.preemptor import Preemptor
from muster.core.queueing.sorter import QueueSorter
from muster.core.quota.accountant import QuotaAccountant
from muster.core.stage import Stage
from muster.events.speakers import SPEAKERS
from muster.model.closed import total

DECIDERS: dict[str, Callable[[], Stage[Any]]] = {
    stage.name: stage for stage in (QuotaAccountant, QueueSorter, GangAdmitter, Preemptor, AutoscalerBridge)
}
"""{stage name: class}"""

total(SPEAKERS, {**DECIDERS, "actuator": None}, "libs/muster/events/speakers.py (SPEAKERS)")
