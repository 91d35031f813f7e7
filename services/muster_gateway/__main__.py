"""Entry point of the stage ``ReadModel`` (``muster.told.readmodel.model``) and of the HTTP that asks it."""

from muster.runtime.process import Process
from muster.runtime.service import main
from muster_gateway import add_gateway


async def build(process: Process) -> None:
    """The runners of this service."""
    await add_gateway(process)


if __name__ == "__main__":
    main("gateway", build)
