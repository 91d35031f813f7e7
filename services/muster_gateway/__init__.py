"""The gateway: the read model over HTTP for people and programs, at any moment, and the dashboard."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from muster.runtime.process import Process
from muster.serving.access import Reviewed, Unrestricted
from muster.serving.answering import Questions
from muster.serving.http import LOOPBACK, GatewayServer
from muster.serving.live import Live
from muster.serving.moments import Moments

PAGES = Path(__file__).parent / "static"
MODULES = PAGES / "vendor"
"""What the dashboard takes from npm; put there at set-up, and in no repository."""


async def add_gateway(process: Process, *, acting: bool = True, folder: Path | None = None) -> GatewayServer:
    """Serve the read model of a process; it ends with the process. Raises KubeConfigError, OSError.

    ``folder``: where states of earlier moments are kept, emptied first; None: a temporary one.
    """
    config, stack = process.config, process.stack
    if folder is None:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="muster-moments-")))
    else:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
    own = process.opened("gateway")
    moments = Moments(own.log, folder, await process.base())
    live = Live(
        log=own.log,
        snapshots=own.snapshots,
        clock=process.clock,
        moments=moments,
        hooks=process.telemetry("readmodel", "gateway"),
        apart=True,
    )
    stack.push_async_callback(live.foresight.stop)
    process.runners.append(live)
    access = Unrestricted() if config.gateway_access == "none" else Reviewed(await process.api_server(), process.clock)
    questions = Questions(live, process.clock, acting=acting)
    hosts = LOOPBACK if config.gateway_access == "none" else frozenset[str]()
    server = GatewayServer(
        questions, access, process.clock, PAGES, config.gateway_host, config.gateway_port, hosts=hosts
    )
    await server.start()
    stack.push_async_callback(server.stop)
    process.logger.info("gateway_served", host=server.host, port=server.port, access=config.gateway_access)
    if not MODULES.is_dir():
        process.logger.warning("dashboard_incomplete", why=MISSING)
    return server


MISSING = (
    "the modules of the dashboard are not installed: run `make setup` where npm's registry is reached; the API works "
    "without them"
)
