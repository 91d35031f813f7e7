"""Entry point of the stage ``Actuator`` (``muster.core.actuation.intents``) and of the presenter."""

from muster.runtime.process import Process
from muster.runtime.service import main


async def build(process: Process) -> None:
    """The runners of this service."""
    process.add_actuator(await process.api_server())


if __name__ == "__main__":
    main("actuator", build)
