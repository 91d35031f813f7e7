"""Entry point of the stage ``Watcher`` (``muster.core.reading.watcher``): a runner for each resource."""

from muster.runtime.process import Process
from muster.runtime.service import main


async def build(process: Process) -> None:
    """The runners of this service."""
    transport = await process.api_server()
    await process.pair(transport)
    process.add_watchers(transport)


if __name__ == "__main__":
    main("watcher", build)
