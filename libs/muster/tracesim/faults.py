"""Faults of a simulation, from a file: lost nodes, and outages of the API server."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from msgspec import Struct

from muster.tracesim.documents import Document, DocumentPlace
from muster.tracesim.model import WHOLE

Kind = Literal["node_loss", "api_outage"]
KINDS = ("node_loss", "api_outage")
_KNOWN = ("kind", "at_s", "for_s", "nodes")


class Fault(Struct, frozen=True):
    """One fault. Times in ms of the trace; ``until`` is None where it is never repaired."""

    kind: Kind
    at: int
    until: int | None = None
    nodes: tuple[str, ...] = ()


class FaultSchedule(Struct, frozen=True):
    """Every fault, in the order of the file."""

    rows: tuple[Fault, ...] = ()

    def moments(self) -> list[int]:
        """When something breaks or is repaired, in order."""
        times = {fault.at for fault in self.rows} | {fault.until for fault in self.rows if fault.until is not None}
        return sorted(times)

    def lost(self, now: int) -> set[str]:
        """Names of the nodes that are away at a moment."""
        return {
            name
            for fault in self.rows
            if fault.kind == "node_loss" and fault.at <= now and (fault.until is None or now < fault.until)
            for name in fault.nodes
        }

    def answered(self, at: int) -> int:
        """The first moment from ``at`` on at which the API server answers."""
        outages = sorted((fault.at, fault.until) for fault in self.rows if fault.kind == "api_outage" and fault.until)
        for begin, end in outages:
            if begin <= at < end:
                at = end
        return at


NO_FAULTS = FaultSchedule()


def read_faults(path: Path, nodes: tuple[str, ...]) -> FaultSchedule:
    """The faults of a file; ``nodes``: names of all nodes. Raises TraceError naming file, line and column."""
    document = Document(path)
    members = document.root.members(known=("faults",))
    if "faults" not in members:
        raise document.root.error('has no faults; write "faults": [{"kind": "node_loss", "at_s": 3600, "nodes": 2}]')
    return FaultSchedule(tuple(_fault(place, nodes) for place in members["faults"].items()))


def _fault(place: DocumentPlace, nodes: tuple[str, ...]) -> Fault:
    members = place.members(known=_KNOWN)
    for name in ("kind", "at_s"):
        if name not in members:
            raise place.error(f"names no {name}")
    kind = members["kind"].expect(str)
    if kind not in KINDS:
        raise members["kind"].error(f"{kind!r} is no kind of fault; there are {' and '.join(KINDS)}")
    at = _ms(members["at_s"])
    until = at + _ms(members["for_s"]) if "for_s" in members else None
    if until is not None and until <= at:
        raise members["for_s"].error("must be more than 0; leave it out for a fault that is never repaired")
    if kind == "api_outage":
        if "nodes" in members:
            raise members["nodes"].error("an api_outage concerns no node")
        if until is None:
            raise place.error("an api_outage needs for_s: with an API server that never comes back nothing ends")
        return Fault("api_outage", at, until)
    return Fault("node_loss", at, until, _lost_nodes(members.get("nodes"), nodes))


def _lost_nodes(place: DocumentPlace | None, nodes: tuple[str, ...]) -> tuple[str, ...]:
    """A number of nodes (the last ones), or a list of names; one node where nothing is said."""
    if place is None:
        return nodes[-1:]
    if isinstance(place.value, list):
        for node in place.items():
            if node.expect(str) not in nodes:
                raise node.error(f"there is no node {node.value}; they are called {nodes[0]} to {nodes[-1]}")
        return tuple(dict.fromkeys(place.value))
    count = int(place.expect(int))
    if not 1 <= count <= len(nodes):
        raise place.error(f"is {count}, and the cluster has {len(nodes)} nodes")
    return nodes[len(nodes) - count :]


def _ms(place: DocumentPlace) -> int:
    value = float(place.expect(int, float))
    if not 0 <= value < 10**10:
        raise place.error(f"must be seconds from 0 on, and is {value}")
    return round(value * WHOLE)
