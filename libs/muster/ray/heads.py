"""Where a head is, and what a client of one offers."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from muster.model.keys import Ref
from muster.ray.reading import Reading


class Certificates(Struct, frozen=True):
    """The client's certificate for a head with TLS, and the authority of the head's certificate; in PEM."""

    ca: bytes
    cert: bytes
    key: bytes

    def __repr__(self) -> str:
        return "Certificates()"


class Head(Struct, frozen=True):
    """The head of one RayCluster."""

    ref: Ref
    """The RayCluster."""
    attempt: int
    gcs: str
    """``host:port``"""
    dashboard: str = ""
    """``http://host:port``; empty where it serves none."""
    token: str = ""
    """Empty where the cluster asks for none. Never shown."""
    tls: bool = False
    """Its gRPC speaks TLS."""
    certificates: Certificates | None = None
    """For that; None: there are none."""

    def __repr__(self) -> str:
        return f"Head({self.ref.namespace}/{self.ref.name} at {self.gcs})"


class Drained(Struct, frozen=True):
    """What a head answered to an order to drain a node."""

    accepted: bool
    why: str = ""
    """Why not, in Ray's words."""


class DemandSource(Protocol):
    """One way to read one head."""

    async def read(self) -> Reading:
        """What the head says now. Raises DemandError, within the time limit of the source."""
        ...

    async def close(self) -> None:
        """Close the connection; nothing is read afterwards."""
        ...
