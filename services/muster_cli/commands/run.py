"""``muster run``: services of a production Muster, one or several in one process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from muster_cli.exits import USAGE, CliError

if TYPE_CHECKING:
    from muster.runtime.process import Process


async def run(
    services: Annotated[str, Parameter(help="Services or groups of them, with commas.")],
    /,
) -> int:
    """Run services in one process until they are stopped."""
    from muster.runtime.layouts import KEEPER, UnknownServiceError, process_name, services_of

    try:
        chosen = services_of(services.split(","))
    except UnknownServiceError as err:
        raise CliError(str(err), USAGE) from err
    # Telemetry takes a second to import; an unknown name need not wait.
    from muster.model.language import speaking
    from muster.runtime.service import run_service
    from muster_cli.composing import add

    async def build(process: Process) -> None:
        for service in chosen:
            await add(process, service)

    with speaking(None):  # Services write to objects that users of all languages read.
        return await run_service(process_name(chosen), build, keeping=KEEPER in chosen)
