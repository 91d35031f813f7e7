"""Finds the API server and our credentials, and returns the transport to it.

Imports kubernetes_asyncio (``slimclient``) only when a connection is made, in a thread: the event loop goes on.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

import muster
from muster.kube import kubeconfig, slimclient
from muster.kube.credentials import Credential, CredentialError, Loaded
from muster.kube.errors import KubeConfigError
from muster.kube.proxy import proxy_for
from muster.kube.sources import Explicit, FromKubeconfig, InCluster, Source, default_source
from muster.model.language import say
from muster.ports import ApiUnreachableError, Clock

if TYPE_CHECKING:
    from muster.kube.transport import ApiTarget, KubeTransport, OnRequest

USER_AGENT = f"muster/{muster.__version__}"
TOKEN_RECHECK_S = 60.0
"""Projected tokens are replaced in their file when 80 % of an hour is over."""
CHECK_TIMEOUT_S = 5.0
LOGIN_TIMEOUT_S = 120.0
"""For the first login: a plugin may open a browser."""


class _SourcePlan(Struct):
    """The result of a source: the address, kubernetes-asyncio's configuration, the credential."""

    target: ApiTarget
    configuration: Any
    credential: Credential
    headers: list[tuple[str, str]]
    proxy: str | None


def contexts(path: str = "", environ: Mapping[str, str] = os.environ) -> tuple[list[str], str]:
    """Names of the contexts a user may choose from, sorted, and the current one (empty when there is none).

    Quick: does not import kubernetes_asyncio. Raises KubeConfigError.
    """
    kubeconfig_read = kubeconfig.read(kubeconfig.locate(path, environ))
    return sorted(kubeconfig_read.contexts), kubeconfig_read.current


async def connect(
    source: Source | None = None,
    *,
    check: bool = False,
    compress: bool = False,
    on_request: OnRequest | None = None,
    clock: Clock | None = None,
    environ: Mapping[str, str] = os.environ,
) -> KubeTransport:
    """A transport to the API server of ``source``, by default ``default_source()``. The caller closes the transport.

    ``check``: ask the server for its version first, so that a wrong address or credential fails here and not later.
    ``clock``: to renew an exec plugin's token before its end; without a clock the token is renewed when the server
    refuses the token. ``compress``: let the server gzip large answers; useful over slow lines only. Raises
    KubeConfigError.
    """
    await asyncio.to_thread(slimclient.load)
    source = source if source is not None else default_source(environ)
    match source:
        case InCluster():
            plan = _in_cluster(source, environ)
        case FromKubeconfig():
            plan = await _from_kubeconfig(source, environ, clock)
        case Explicit():
            plan = _explicit(source)
    transport = _build(plan, environ, compress=compress, on_request=on_request)
    if check:
        try:
            await ping(transport)
        except BaseException:
            await transport.close()
            raise
    return transport


async def bearer_of(
    source: FromKubeconfig, server: str, clock: Clock | None = None, *, language: str = "en"
) -> tuple[KubeTransport, bool]:
    """A transport to another server that reviews tokens of this cluster, and whether its requests have a token.

    It takes the token of a kubeconfig's user, and neither the password or certificate of the user nor the authority of
    the cluster: TLS is by the system's authorities. Without a kubeconfig there is no token. Raises KubeConfigError.
    """
    from aiohttp import TCPConnector

    from muster.kube.transport import ApiTarget, KubeTransport, Wire

    origin, home, credential = "no kubeconfig", "", Credential(Loaded(None))
    if source.path or source.context or any(path.exists() for path in kubeconfig.locate("", os.environ)):
        await asyncio.to_thread(slimclient.load)
        plan = await _from_kubeconfig(source, os.environ, clock)
        origin, home, credential = plan.target.origin, plan.target.namespace, plan.credential
    signed = (await credential.header() or "").startswith("Bearer ")
    if not signed:
        credential = Credential(Loaded(None))
    connector = TCPConnector()
    wire = Wire(connector=connector, close=connector.close, proxy=proxy_for(server, os.environ))
    target, spoken = ApiTarget(server.rstrip("/"), origin, home), [("Accept-Language", language)]
    return KubeTransport(target, wire, credential, user_agent=USER_AGENT, headers=spoken, compress=True), signed


async def ping(transport: KubeTransport) -> None:
    """Raise KubeConfigError unless the server answers and accepts the credential (it need not grant anything)."""
    target = transport.target
    try:
        answer = await transport.request("GET", "/version", timeout_s=CHECK_TIMEOUT_S)
    except ApiUnreachableError as err:
        raise KubeConfigError(
            say(
                "cannot reach the API server {server} ({origin}): {cause}; is it running, and is the address right?",
                server=target.server,
                origin=target.origin,
                cause=err.__cause__ or err,
            ),
            retryable=True,
        ) from err
    if answer.status == 401:
        raise KubeConfigError(
            say(
                "cannot log in to {server} ({origin}): the server refuses our credential; it may have "
                "ended: renew it, or choose another context",
                server=target.server,
                origin=target.origin,
            )
        )
    if not answer.ok and answer.status != 403:
        raise KubeConfigError(
            say(
                "cannot use {server} ({origin}): it answered GET /version with HTTP {status}; is that a "
                "Kubernetes API server?",
                server=target.server,
                origin=target.origin,
                status=answer.status,
            ),
            retryable=answer.status >= 500,
        )


def _configuration() -> Any:
    from kubernetes_asyncio import client

    configuration = client.Configuration()
    # From Python 3.13 on certificates must by default carry extensions that many clusters' own CAs leave out.
    configuration.disable_strict_ssl_verification = True
    return configuration


def _in_cluster(source: InCluster, environ: Mapping[str, str]) -> _SourcePlan:
    from kubernetes_asyncio.config import ConfigException
    from kubernetes_asyncio.config.incluster_config import InClusterConfigLoader

    from muster.kube.transport import ApiTarget

    directory = Path(source.directory)
    configuration = _configuration()
    try:
        InClusterConfigLoader(
            token_filename=str(directory / "token"),
            cert_filename=str(directory / "ca.crt"),
            try_refresh_token=False,
            environ=dict(environ),
        ).load_and_set(configuration)
        credential = _file_credential(directory / "token")
    except (ConfigException, OSError, CredentialError) as err:
        raise KubeConfigError(
            say(
                "cannot use the service account in {directory}: {err}; outside a cluster name a kubeconfig",
                directory=directory,
                err=err,
            )
        ) from err
    namespace = directory / "namespace"
    home = namespace.read_text().strip() if namespace.exists() else ""
    target = ApiTarget(configuration.host, "in-cluster", home or "default")
    return _SourcePlan(target, configuration, credential, [], None)


async def _from_kubeconfig(source: FromKubeconfig, environ: Mapping[str, str], clock: Clock | None) -> _SourcePlan:
    from muster.kube.transport import ApiTarget

    kubeconfig_read = kubeconfig.read(kubeconfig.locate(source.path, environ))
    choice = kubeconfig.choose(kubeconfig_read, source.context)
    origin = f"context {choice.context} of {kubeconfig_read.origin}"
    configuration = _configuration()
    load = _user_loader(choice, clock)
    try:
        async with asyncio.timeout(LOGIN_TIMEOUT_S):
            first = await load(configuration)
        if choice.user.get("tokenFile"):
            credential = _file_credential(Path(choice.user["tokenFile"]))
        elif "exec" in choice.user or "auth-provider" in choice.user:
            credential = Credential(first, lambda: load(_configuration()))
        else:
            credential = Credential(first)
    except (CredentialError, OSError) as err:
        raise KubeConfigError(say("cannot log in with {origin}: {err}", origin=origin, err=_words(err))) from err
    target = ApiTarget(choice.server, origin, choice.namespace, choice.context)
    user = {"as": source.as_user, "as-groups": source.as_groups} if source.as_user else choice.user
    return _SourcePlan(target, configuration, credential, _impersonation(user), configuration.proxy)


def _explicit(source: Explicit) -> _SourcePlan:
    from muster.kube.transport import ApiTarget

    configuration = _configuration()
    configuration.host = source.server.rstrip("/")
    configuration.ssl_ca_cert = source.ca_file or None
    configuration.cert_file = source.cert_file or None
    configuration.key_file = source.key_file or None
    configuration.verify_ssl = source.verify
    configuration.tls_server_name = source.server_name or None
    try:
        if source.token_file:
            credential = _file_credential(Path(source.token_file))
        else:
            credential = Credential(Loaded(f"Bearer {source.token.strip()}" if source.token else None))
    except (OSError, CredentialError) as err:
        raise KubeConfigError(say("cannot read the token for {server}: {err}", server=source.server, err=err)) from err
    return _SourcePlan(ApiTarget(configuration.host, "explicit", source.namespace), configuration, credential, [], None)


def _build(
    plan: _SourcePlan, environ: Mapping[str, str], *, compress: bool, on_request: OnRequest | None
) -> KubeTransport:
    from kubernetes_asyncio import client

    from muster.kube.transport import KubeTransport, Wire

    server = plan.target.server
    if not server.startswith(("http://", "https://")):
        raise KubeConfigError(
            say(
                "cannot use the server {server} ({origin}): it must start with https://",
                server=server,
                origin=plan.target.origin,
            )
        )
    try:
        api = client.ApiClient(configuration=plan.configuration)
    except (OSError, ssl.SSLError, ValueError) as err:
        raise KubeConfigError(
            say(
                "cannot set up TLS for {server} ({origin}): {err}; CA file {ssl_ca_cert}, client "
                "certificate {cert_file}",
                server=server,
                origin=plan.target.origin,
                err=_words(err),
                ssl_ca_cert=plan.configuration.ssl_ca_cert or "(system)",
                cert_file=plan.configuration.cert_file or "(none)",
            )
        ) from err
    wire = Wire(
        connector=api.rest_client.pool_manager.connector,
        close=api.close,
        server_hostname=api.rest_client.server_hostname,
        proxy=plan.proxy or proxy_for(server, environ),
    )
    return KubeTransport(
        plan.target,
        wire,
        plan.credential,
        user_agent=USER_AGENT,
        headers=plan.headers,
        compress=compress,
        on_request=on_request,
    )


def _file_credential(path: Path) -> Credential:
    """The token in a file that is replaced from time to time."""

    def read() -> Loaded:
        token = path.read_text(encoding="ascii").strip()
        if not token:
            raise CredentialError(f"the token file {path} is empty")
        return Loaded(f"Bearer {token}", recheck_s=TOKEN_RECHECK_S)

    async def load() -> Loaded:
        return read()

    return Credential(read(), load)


def _user_loader(choice: kubeconfig.ContextChoice, clock: Clock | None) -> Callable[[Any], Awaitable[Loaded]]:
    """Logs in again at each call: runs the exec plugin, refreshes the OIDC token, or reads the token."""

    async def load(configuration: Any) -> Loaded:
        from kubernetes_asyncio.config.kube_config import load_kube_config_from_dict

        try:
            loader = await load_kube_config_from_dict(choice.document(), client_configuration=configuration)
        except Exception as err:  # whatever a plugin, a file or an odd value makes kubernetes-asyncio raise
            raise CredentialError(_words(err)) from err
        header = configuration.api_key.get("BearerToken")
        if header is not None:
            header = header.strip()
        ends: datetime | None = getattr(loader, "exec_plugin_expiry", None)
        valid_s = ends.timestamp() - clock.now() / 1000 if ends is not None and clock is not None else None
        # Providers do not tell when their token ends, but know it when they are asked again.
        recheck_s = TOKEN_RECHECK_S if "auth-provider" in choice.user else None
        return Loaded(header, valid_s, recheck_s)

    return load


def _impersonation(user: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Headers for ``as``, ``as-uid``, ``as-groups`` and ``as-user-extra``, which kubernetes-asyncio would ignore."""
    headers = [("Impersonate-User", str(user["as"]))] if user.get("as") else []
    if user.get("as-uid"):
        headers.append(("Impersonate-Uid", str(user["as-uid"])))
    headers += [("Impersonate-Group", str(group)) for group in user.get("as-groups") or []]
    for key, values in (user.get("as-user-extra") or {}).items():
        headers += [(f"Impersonate-Extra-{key}", str(value)) for value in values]
    return headers


def _words(err: BaseException) -> str:
    return str(err) or type(err).__name__
