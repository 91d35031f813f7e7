"""Names of things: workload references, quota paths, positions in the log, intents."""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct


class Position(Struct, frozen=True, gc=False, order=True):
    """The position of an event: log sequence, place inside its commit, log time in ms since the epoch."""

    seq: int
    item: int
    at: int


class Ref(Struct, frozen=True, gc=False):
    """A Kubernetes object, readable and unique: ``RayJob video/rayjob-video-g2lvn`` plus the uid."""

    kind: str
    namespace: str
    name: str
    uid: str

    @property
    def key(self) -> str:
        """``namespace/name``, or the bare name of a cluster-scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    def __str__(self) -> str:
        return f"{self.kind} {self.key}"


class Intent(Struct, frozen=True, gc=False, order=True):
    """The decision a write to the API server carries out: generation of the log, sequence, place in the commit.

    Intents are ordered; the larger one is the newer decision. The text form is what the annotation
    ``muster.dev/intent`` holds.
    """

    generation: int
    seq: int
    item: int

    def __str__(self) -> str:
        return f"{self.generation}-{self.seq}-{self.item}"

    @classmethod
    def parse(cls, text: str) -> Intent | None:
        """The intent a text names, or None when another client wrote something else there."""
        parts = text.split("-")
        if len(parts) != 3 or not all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts):
            return None
        return cls(int(parts[0]), int(parts[1]), int(parts[2]))


def parent_path(path: str) -> str | None:
    """The quota path one level up; None for the root."""
    head, slash, _ = path.rpartition("/")
    return head if slash else None


@lru_cache(maxsize=65536)
def root_of(path: str) -> str:
    """The root of a quota path, the key of the tree: ``root/a/b`` -> ``root``."""
    return path.partition("/")[0]


def path_chain(path: str) -> tuple[str, ...]:
    """The path and its ancestors, leaf first: ``root/a/b`` -> ``(root/a/b, root/a, root)``."""
    parts = path.split("/")
    return tuple("/".join(parts[:size]) for size in range(len(parts), 0, -1))
