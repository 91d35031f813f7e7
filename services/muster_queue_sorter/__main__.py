"""Entry point of the stage :class:`QueueSorter`: configuration, adapters, runner."""

from muster.core.queueing.sorter import QueueSorter
from muster.runtime.process import Process
from muster.runtime.service import main


async def build(process: Process) -> None:
    """The runners of this service."""
    process.add_decider(QueueSorter)


if __name__ == "__main__":
    main("queue-sorter", build)
