"""Entry point: configuration, adapters, runner."""

from muster.runtime.service import Process, main


async def build(process: Process) -> None:
    """The runners of this service."""
    process.add_decider("preemptor")


if __name__ == "__main__":
    main("preemptor", build)
