"""Entry point of the stage :class:`Preemptor`: configuration, adapters, runner."""

from muster.core.preemption.preemptor import Preemptor
from muster.runtime.process import Process
from muster.runtime.service import main


async def build(process: Process) -> None:
    """The runners of this service."""
    process.add_decider(Preemptor)


if __name__ == "__main__":
    main("preemptor", build)
