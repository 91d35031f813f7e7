"""Entry point: configuration, adapters, runner."""

from muster.runtime.process import Process
from muster.runtime.service import main


async def build(process: Process) -> None:
    """The runners of this service."""
    process.add_decider("queue_sorter")


if __name__ == "__main__":
    main("queue-sorter", build)
