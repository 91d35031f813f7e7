"""What the owners of Ray clusters do to them by the manifests they have."""

from __future__ import annotations

from random import Random
from typing import Any

from kit.elastic import ElasticPlay


class RayOwner:
    """Clusters of one play, and the manifest of each; everything is drawn from ``rng``."""

    rng: Random
    play: ElasticPlay
    manifests: dict[str, Any]

    def one(self) -> str:
        """A cluster that lives; empty where there is none."""
        living = [name for name in self.manifests if name in self.play.scalers]
        return self.rng.choice(living) if living else ""

    def apply(self) -> None:
        if name := self.one():
            self.play.apply(self.manifests[name])

    def least(self) -> None:
        if name := self.one():
            group = self.manifests[name]["spec"]["workerGroupSpecs"][0]
            group["minReplicas"] = min(self.rng.choice((0, 1, 3)), group["maxReplicas"])
            self.play.apply(self.manifests[name])

    def by_hand(self) -> None:
        if name := self.one():
            value = self.rng.choice((0, 1, 4))
            self.play.edit([{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": value}], name)
