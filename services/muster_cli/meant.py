"""The source of a command's answer: the gateway that is meant, the gateway of a ``muster up``, or the log itself.

A running gateway has the read model. Without one a command opens the newest snapshot and folds what came after it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from muster import languages
from muster.model.language import say
from muster_cli import instances
from muster_cli.exits import USAGE, CliError
from muster_cli.options import GatewayOption, Source

if TYPE_CHECKING:
    from muster.runtime.config import Config
    from muster_cli.gateway import Gateway

T = TypeVar("T")
LOOPBACK = ("127.0.0.1", "::1", "localhost")
BESIDE_S = 2.0
"""A gateway beside the log answers within this time, or the command reads the log."""


async def answered(
    through: GatewayOption | None,
    source: Source | None,
    at: str,
    ask: Callable[[Gateway], Awaitable[T]],
    read: Callable[[], Awaitable[T]],
    *,
    beside: bool = True,
) -> T:
    """The answer of ``ask`` where a gateway is meant. Else the faster of two equal answers: of ``ask``, where the
    gateway of a ``muster up`` follows the meant log, or of ``read``, which reads the log.

    Raises CliError, KubeConfigError, and what ``read`` raises.
    """
    if url := _url_of(through, source):
        async with _opened(through or GatewayOption(), url, at) as gateway:
            return await ask(gateway)
    if beside and (url := _beside(source or Source(), at)):
        from muster_cli.gateway import Gateway
        from muster_cli.loopback import Loopback

        # Any other question, and any mistake in it, is for the log.
        with contextlib.suppress(CliError):
            return await ask(Gateway(Loopback(url, languages.spoken()), "", answer_s=BESIDE_S))
    return await read()


def through_gateway(through: GatewayOption | None, source: Source | None) -> bool:
    """Whether a command line means a gateway. Raises CliError."""
    return bool(_url_of(through, source))


@contextlib.asynccontextmanager
async def _opened(through: GatewayOption, url: str, at: str) -> AsyncIterator[Gateway]:
    # Only now: most command lines mean a log, and start sooner without a web client.
    from muster.kube.config import bearer_of
    from muster.kube.sources import FromKubeconfig
    from muster.runtime.clock import SystemClock
    from muster_cli.gateway import Gateway

    wanted = FromKubeconfig(through.kubeconfig or "", through.context or "")
    transport, signed = await bearer_of(wanted, url, SystemClock(), language=languages.spoken())
    try:
        yield Gateway(transport, at, signed=signed)
    finally:
        await transport.close()


def _url_of(through: GatewayOption | None, source: Source | None) -> str:
    """Empty: a log is meant. Raises CliError."""
    through, source = through or GatewayOption(), source or Source()
    logs = [name for name, value in (("--log", source.log), ("--data", source.data), ("--url", source.url)) if value]
    if through.gateway and logs:
        raise CliError(say("--gateway and {logs} both say what to read; give one of them", logs=logs[0]), USAGE)
    url = through.gateway or ""
    if not url and not logs:
        config, origins = _settings()
        url = config.gateway_url if config is not None and "nats_url" not in origins else ""
    if not url:
        if through.context or through.kubeconfig:
            raise CliError(say("--context and --kubeconfig are for a gateway: name it with --gateway URL"), USAGE)
        return ""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise CliError(
            say("--gateway {url} is no address: write https://HOST, or http://127.0.0.1:PORT", url=url), USAGE
        )
    if parts.scheme == "http" and parts.hostname not in LOOPBACK:
        raise CliError(
            say(
                "--gateway {url} would carry your token in the clear: take https://, or a port-forward on this machine",
                url=url,
            ),
            USAGE,
        )
    return url


def _beside(source: Source, at: str) -> str:
    """The gateway of the one ``muster up`` whose log is meant, as of now; empty without one."""
    if at or source.log or source.data:
        return ""
    config, origins = _settings()
    url = source.url or (config.nats_url if config is not None and "nats_url" in origins else "")
    cell = source.cell or (config.cell if config is not None and "cell" in origins else "")
    named = instances.named(url)
    # Of several the command says which one it took, and that is done where the log is opened.
    return named[0].gateway if len(named) == 1 and cell in ("", named[0].cell) else ""


def _settings() -> tuple[Config | None, dict[str, str]]:
    """The settings, and where they come from; None where there are none. Raises ConfigError."""
    if not any(name.startswith("MUSTER_") and name != "MUSTER_LANG" for name in os.environ):
        return None, {}
    from muster.runtime.config import load_with_origins  # The table of kinds is imported with it.

    return load_with_origins()
