"""The manifests of the first document we promise to run as written: RayJob, ConfigMap and Queue of the video team.

Field by field as there (comments apart); the script in the ConfigMap is our own, since nothing runs it.
"""

from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent / "manifests"


def manifest(name: str) -> dict[str, Any]:
    """A fresh copy: ``rayjob-video``, ``configmap-video`` or ``queue-video``."""
    found: dict[str, Any] = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    return found
