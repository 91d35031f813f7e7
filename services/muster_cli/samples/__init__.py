"""The manifests that ``muster up`` starts with: the tutorial's quota tree, program and RayJob."""

from __future__ import annotations

from importlib import resources
from typing import Any

import yaml

QUOTA_TREE = "quota-tree.yaml"
CONFIG_MAP = "configmap.yaml"
RAYJOB = "rayjob.yaml"
NAMES = (QUOTA_TREE, CONFIG_MAP, RAYJOB)


def text(name: str) -> str:
    """A sample as its author wrote it, comments and all."""
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8")


def manifest(name: str) -> dict[str, Any]:
    """A sample as an object; each call returns a new one."""
    found: dict[str, Any] = yaml.safe_load(text(name))
    return found
