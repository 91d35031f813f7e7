"""Entry point of the stage :class:`AutoscalerBridge`: configuration, adapters, runner."""

import sys

from muster.core.autoscaling.bridge import AutoscalerBridge
from muster.runtime.endings import MISCONFIGURED
from muster.runtime.process import Process
from muster.runtime.service import main

SERVICE = "autoscaler-bridge"
EXTRA = ("grpc", "google")
"""What the modules of the extra ``ray`` begin with."""

try:
    from muster_autoscaler_bridge.leading import bridge_of
except ModuleNotFoundError as err:
    if not (err.name or "").startswith(EXTRA):
        raise
    print(  # noqa: T201
        f"muster {SERVICE}: module {err.name} is not installed, and heads of Ray clusters are read by it; install the "
        "extra: pip install 'kube-muster[ray]'",
        file=sys.stderr,
    )
    sys.exit(MISCONFIGURED)


async def build(process: Process) -> None:
    """The runners of this service."""
    process.add_decider(AutoscalerBridge, bridge_of(process))


if __name__ == "__main__":
    main(SERVICE, build)
