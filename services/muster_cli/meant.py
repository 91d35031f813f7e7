"""Whether a command line means a gateway or a log, and the open gateway."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from muster import languages
from muster.model.language import say
from muster.runtime.config import LOOPBACK, load_with_origins
from muster_cli.exits import USAGE, CliError
from muster_cli.options import GatewayOption
from muster_cli.sources import Source

if TYPE_CHECKING:
    from muster_cli.gateway import Gateway


@contextlib.asynccontextmanager
async def gateway_of(
    through: GatewayOption | None, source: Source | None, at: str = ""
) -> AsyncIterator[Gateway | None]:
    """The gateway a command line means; None where it means a log. Raises CliError, KubeConfigError."""
    through = through or GatewayOption()
    url = _url_of(through, source or Source())
    if not url:
        yield None
        return
    # Only now: most command lines mean a log, and start sooner without a web client and the shapes of answers.
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


def _url_of(through: GatewayOption, source: Source) -> str:
    """Empty: a log is meant. Raises CliError."""
    logs = [name for name, value in (("--log", source.log), ("--data", source.data), ("--url", source.url)) if value]
    if through.gateway and logs:
        raise CliError(say("--gateway and {logs} both say what to read; give one of them", logs=logs[0]), USAGE)
    url = through.gateway or ""
    if not url and not logs:
        config, origins = load_with_origins()
        url = "" if "nats_url" in origins else config.gateway_url
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
