"""Entry point of the stage ``ReadModel`` (``muster.told.readmodel.model``) and of the publisher, which asks it."""

from muster.runtime.process import Process
from muster.runtime.service import main


async def build(process: Process) -> None:
    """The runners of this service."""
    process.add_publisher()


if __name__ == "__main__":
    main("publisher", build)
