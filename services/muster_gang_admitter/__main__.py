"""Entry point of the stage :class:`GangAdmitter`: configuration, adapters, runner."""

from muster.core.gang.admitter import GangAdmitter
from muster.runtime.process import Process
from muster.runtime.service import main


async def build(process: Process) -> None:
    """The runners of this service."""
    process.add_decider(GangAdmitter)


if __name__ == "__main__":
    main("gang-admitter", build)
