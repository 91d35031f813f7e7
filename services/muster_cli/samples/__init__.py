"""The manifests of ``muster up``: for the demo, for the tutorial, and for the story about KAI queues."""

from __future__ import annotations

from importlib import resources
from typing import Any

import yaml

QUOTA_TREE = "quota-tree.yaml"
CONFIG_MAP = "configmap.yaml"
RAYJOB = "rayjob.yaml"
TEAMS = "teams.yaml"
TRAINING = "training.yaml"
KAI_QUEUES = "kai-queues.yaml"
KAI_CLUSTER = "ray-cluster.kai-scheduler.yaml"
KAI_SHARING = "ray-cluster.kai-gpu-sharing.yaml"


def text(name: str) -> str:
    """A sample as its author wrote it, comments and all."""
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8")


def manifests(name: str) -> list[dict[str, Any]]:
    """The objects of a sample; each call returns new ones."""
    return [*yaml.safe_load_all(text(name))]


def manifest(name: str) -> dict[str, Any]:
    """A sample of one object."""
    (parsed,) = manifests(name)
    return parsed
