"""``muster up``."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Group, Parameter

from muster.model.language import marked, say
from muster_cli.exits import USAGE, CliError

REAL = Group(marked("On a real cluster"), sort_key=80)
MAX_SPEED = 1000.0


async def up(
    *,
    headless: Annotated[bool, Parameter(negative="", help="For scripts: no hints, plain lines.")] = False,
    duration: Annotated[
        float | None,
        Parameter(
            show_default=False, help="End by itself so many seconds after the start; fails when no job was admitted."
        ),
    ] = None,
    speed: Annotated[float, Parameter(help="How fast the simulated cluster lives, e.g. 5.")] = 1.0,
    seed: Annotated[int, Parameter(help="The same seed gives the simulated cluster the same names.")] = 0,
    data: Annotated[
        Path | None,
        Parameter(show_default=False, help="Keep log and cluster in this directory, and continue with its content."),
    ] = None,
    port: Annotated[
        int | None, Parameter(show_default=False, help="Port of nats-server. Without it: 4222, else any free one.")
    ] = None,
    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], negative="", help="Print errors only.")] = False,
    jobs: Annotated[bool, Parameter(name="--jobs", help="Submit the jobs of the story.")] = True,
    story: Annotated[
        Literal["teams", "quota", "kai"],
        Parameter(
            help="What is shown: teams on 32 GPUs, without end; two jobs and a quota; KAI queues and a shared GPU."
        ),
    ] = "teams",
    context: Annotated[
        str, Parameter(group=REAL, show_default=False, help="Context of the kubeconfig: watch that cluster.")
    ] = "",
    kubeconfig: Annotated[str, Parameter(group=REAL, show_default=False, help="Kubeconfig file to take it from.")] = "",
    act: Annotated[
        bool, Parameter(group=REAL, negative="", help="Admit jobs there; refuses when something speaks against it.")
    ] = False,
) -> int:
    """Run a whole Muster."""
    if act and not (context or kubeconfig):
        raise CliError(
            say("--act is for a real cluster: name it with --context (the simulated one is acted on anyway)"), USAGE
        )
    if not 0.01 <= speed <= MAX_SPEED:
        raise CliError(
            say("--speed is {speed:g}; take a number from 0.01 to {max_speed:g}", speed=speed, max_speed=MAX_SPEED),
            USAGE,
        )
    if (context or kubeconfig) and speed != 1:
        raise CliError(say("--speed is for the simulated cluster: a real one has its own time"), USAGE)
    if (context or kubeconfig) and story != "teams":
        raise CliError(say("--story is for the simulated cluster: a real one has its own jobs"), USAGE)
    if duration is not None and duration <= 0:
        raise CliError(say("--duration is {duration:g}; take a number of seconds over 0", duration=duration), USAGE)
    if port is not None and not 1 <= port <= 65535:
        raise CliError(say("--port is {port}; take one from 1 to 65535", port=port), USAGE)
    # The next imports take a second; `muster up --help` need not wait.
    from muster_cli.console import Output
    from muster_cli.local.session import Session, UpOptions
    from muster_cli.local.stories import STORIES

    wishes = UpOptions(
        context=context,
        kubeconfig=kubeconfig,
        act=act,
        headless=headless,
        duration_s=duration,
        speed=speed,
        seed=seed,
        data=data,
        port=port,
        quiet=quiet,
        jobs=jobs,
        story=STORIES[story],
    )
    session = Session(wishes, Output())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, session.stop)
    return await session.run()
