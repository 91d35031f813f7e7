"""Entry point: configuration, adapters, runner."""

from muster.runtime.process import Process
from muster.runtime.service import main
from muster_autoscaler_bridge.leading import bridge_of


async def build(process: Process) -> None:
    """The runners of this service."""
    process.add_decider("autoscaler_bridge", bridge_of(process))


if __name__ == "__main__":
    main("autoscaler-bridge", build)
