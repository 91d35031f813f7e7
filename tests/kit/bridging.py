"""The autoscaler bridge as a process that finds the head of every Ray cluster where a test serves one.

KIT_HEAD=127.0.0.1:PORT python -m kit.bridging
"""

from __future__ import annotations

import os

from muster.model.elastic import HeadService
from muster.model.keys import Ref
from muster.ray.heads import Head
from muster.runtime.service import main
from muster_autoscaler_bridge.__main__ import build
from muster_autoscaler_bridge.leading import BridgeLeader

PROGRAM = ("-m", "kit.bridging")
HEAD = "KIT_HEAD"


def head_of(cluster: Ref, attempt: int, _served: HeadService) -> Head:
    """Where the test serves it."""
    return Head(cluster, attempt, os.environ[HEAD])


if __name__ == "__main__":
    BridgeLeader.address = staticmethod(head_of)
    main("autoscaler-bridge", build)
