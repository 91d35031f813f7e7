"""Tokens of Ray heads that ask for one, from files: the bridge has no access to the cluster, and needs none.

A folder has a file ``NAMESPACE.NAME`` for each RayCluster with a token of its own, and ``default`` for the others; a
mounted Secret is such a folder. Files are read again, so that a token may be changed at any time.
"""

from __future__ import annotations

from pathlib import Path

from muster.model.keys import Ref

MAX_BYTES = 16 * 1024


class Tokens:
    """``folder``: None where no head asks for a token."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def of(self, cluster: Ref) -> str:
        """The token of the head of a RayCluster; empty where there is none."""
        if self._folder is None:
            return ""
        return self._read(f"{cluster.namespace}.{cluster.name}") or self._read("default")

    def _read(self, name: str) -> str:
        assert self._folder is not None
        try:
            with (self._folder / name).open("rb") as file:
                return file.read(MAX_BYTES).decode("ascii", "replace").strip()
        except OSError:
            return ""
