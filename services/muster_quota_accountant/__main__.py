"""Entry point of the stage :class:`QuotaAccountant`: configuration, adapters, runner."""

from muster.core.quota.accountant import QuotaAccountant
from muster.runtime.process import Process
from muster.runtime.service import main


async def build(process: Process) -> None:
    """The runners of this service."""
    process.add_decider(QuotaAccountant)


if __name__ == "__main__":
    main("quota-accountant", build)
