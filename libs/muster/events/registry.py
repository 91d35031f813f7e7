"""All event types, and the codec that writes and reads events byte for byte the same."""

from __future__ import annotations

from typing import get_args

import msgspec

from muster.events.alarms import AlarmDecision
from muster.events.base import Event
from muster.events.charges import ChargeChanged
from muster.events.claims import ClaimDecision
from muster.events.decisions import AnyDecision
from muster.events.effects import Effect
from muster.events.elastic import ElasticDecision
from muster.events.facts import Fact
from muster.events.gangs import PodDecision
from muster.events.growing import GrowthDecision
from muster.events.raydemand import RayDemandObserved
from muster.events.shares import SharesChanged
from muster.events.system import SystemEvent

AnyEvent = (
    Fact
    | RayDemandObserved
    | AnyDecision
    | ChargeChanged
    | SharesChanged
    | ClaimDecision
    | PodDecision
    | GrowthDecision
    | ElasticDecision
    | AlarmDecision
    | Effect
    | SystemEvent
)

EVENT_TYPES: dict[str, type[Event]] = {cls.__struct_config__.tag: cls for cls in get_args(AnyEvent)}
"""{tag: type} of everything the log may hold."""
RETIRED = {
    **dict.fromkeys(("clearing_ordered", "clearing_proposed", "clearing_tried"), "f3a06c66"),
    "plan_tried": "67a3d2d3",
}
"""{tag that no event has any more: the last commit of Muster with the event}"""

_encoder = msgspec.json.Encoder(order="deterministic")
encode = _encoder.encode
"""Any struct to JSON bytes; sets and dicts are written in sorted order, so equal values give equal bytes."""
