"""Tokens and certificates of Ray heads that ask for one, from files: the bridge has no access to the cluster, and needs
none.

A folder has a file ``NAMESPACE.NAME`` for each RayCluster with a token of its own, and ``default`` for the others; a
mounted Secret is such a folder. With TLS it has ``NAMESPACE.NAME.ca.crt``, ``.tls.crt`` and ``.tls.key`` too. Files are
read again, so that a token may be changed at any time.
"""

from __future__ import annotations

from pathlib import Path

from muster.model.keys import Ref
from muster.ray.heads import Certificates

MAX_BYTES = 64 * 1024


class Tokens:
    """``folder``: None where no head asks for a token."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def of(self, cluster: Ref) -> str:
        """The token of the head of a RayCluster; empty where there is none."""
        if self._folder is None:
            return ""
        token = self._read(f"{cluster.namespace}.{cluster.name}") or self._read("default")
        return token.decode("ascii", "replace").strip()

    def certificates(self, cluster: Ref) -> Certificates | None:
        """What a head that speaks TLS is shown; None where any of it is missing."""
        if self._folder is None:
            return None
        for name in (f"{cluster.namespace}.{cluster.name}", "default"):
            ca, cert, key = (self._read(f"{name}.{part}") for part in ("ca.crt", "tls.crt", "tls.key"))
            if ca and cert and key:
                return Certificates(ca, cert, key)
        return None

    def _read(self, name: str) -> bytes:
        assert self._folder is not None
        try:
            with (self._folder / name).open("rb") as file:
                return file.read(MAX_BYTES)
        except OSError:
            return b""
