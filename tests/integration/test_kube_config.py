"""Every way to a connection, over real sockets: where the token comes from, when it is renewed, what fails how."""

import json
import stat
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from kit.fakeapi import Answer, FakeApi, refusal
from muster.kube.config import connect
from muster.kube.errors import KubeConfigError
from muster.kube.sources import Explicit, FromKubeconfig, InCluster, Source
from muster.kube.transport import KubeTransport

PODS = "/api/v1/pods"
#: A certificate authority nobody has the key of.
AUTHORITY = """-----BEGIN CERTIFICATE-----
MIIBgzCCASmgAwIBAgIUChL9wQUFR10MtJNlvcxUGFX7Y+owCgYIKoZIzj0EAwIw
FjEUMBIGA1UEAwwLbXVzdGVyLXRlc3QwIBcNMjYxMTIxMDc1NTE5WhgPMjEyNjEw
MjgwNzU1MTlaMBYxFDASBgNVBAMMC211c3Rlci10ZXN0MFkwEwYHKoZIzj0CAQYI
KoZIzj0DAQcDQgAE6lD5JXb6km6We2D2P8IR6LxrDMUBst53mN7RsYNdQV2uKt6R
DsoX+XWhY1Q6wOx64hkuYcnIG7DHB35bAaDUWKNTMFEwHQYDVR0OBBYEFKFhtc27
3qrknSKuXs+HwAWaqxyyMB8GA1UdIwQYMBaAFKFhtc273qrknSKuXs+HwAWaqxyy
MA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDSAAwRQIgPtxiT8bojreBYNBn
Upc+9a9Z3CijdLFmhxllf27qrbECIQCwIfDdQ/R9mNGjA94oL/1BziyflT8I0OyU
BGgaNJjivg==
-----END CERTIFICATE-----
"""


@pytest_asyncio.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi(PODS) as server:
        server.canned["GET", "/version"] = Answer(200, b'{"major": "1", "minor": "36"}')
        yield server


def kubeconfig(tmp_path: Path, server: str, user: dict[str, Any] | None, **context: str) -> FromKubeconfig:
    found = {
        "current-context": "dev",
        "contexts": [
            {"name": "dev", "context": {"cluster": "k", **({"user": "u"} if user is not None else {}), **context}}
        ],
        "clusters": [{"name": "k", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}] if user is not None else None,
    }
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(found))
    return FromKubeconfig(str(path))


def plugin(tmp_path: Path, body: str) -> dict[str, Any]:
    """An exec plugin that prints a credential and counts its runs in a file."""
    script = tmp_path / "login"
    script.write_text(f"#!/bin/sh\necho run >> {tmp_path}/runs\n{body}\n")
    script.chmod(script.stat().st_mode | stat.S_IEXEC)
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "./login", "args": ["get"]}}


def runs(tmp_path: Path) -> int:
    return len((tmp_path / "runs").read_text().splitlines())


def credential(token: str, **more: str) -> str:
    return json.dumps(
        {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": token, **more}}
    )


async def authorization(api: FakeApi, transport: KubeTransport) -> str | None:
    """What a request to the collection identifies itself with."""
    await transport.request("GET", PODS)
    return api.seen[-1].headers.get("Authorization")


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ({"token": "t\n"}, "Bearer t"),
        ({"username": "me", "password": "x"}, "Basic bWU6eA=="),
        ({}, None),
        (None, None),
    ],
)
async def test_kubeconfig_user(api: FakeApi, tmp_path: Path, user: dict[str, str] | None, expected: str | None) -> None:
    transport = await connect(kubeconfig(tmp_path, api.url, user, namespace="team"), check=True, environ={})
    assert await authorization(api, transport) == expected
    assert (transport.target.context, transport.target.namespace, transport.target.server) == ("dev", "team", api.url)
    await transport.close()


async def test_impersonation_is_honoured(api: FakeApi, tmp_path: Path) -> None:
    user = {"token": "t", "as": "eve", "as-groups": ["g1"], "as-user-extra": {"scope": ["all"]}}
    transport = await connect(kubeconfig(tmp_path, api.url, user), environ={})
    await transport.request("GET", PODS)
    headers = api.seen[-1].headers
    assert (headers["Impersonate-User"], headers["Impersonate-Group"]) == ("eve", "g1")
    assert headers["Impersonate-Extra-scope"] == "all"
    await transport.close()


async def test_token_file_is_read_again_when_refused(api: FakeApi, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("one\n")
    api.token = "one"
    transport = await connect(kubeconfig(tmp_path, api.url, {"tokenFile": "token"}), environ={})
    assert (await transport.request("GET", PODS)).ok
    api.token = "two"
    (tmp_path / "token").write_text("two\n")
    assert (await transport.request("GET", PODS)).ok
    await transport.close()


async def test_refused_token_that_did_not_change_is_an_answer(api: FakeApi, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("one")
    api.token = "two"
    transport = await connect(Explicit(api.url, token_file=str(tmp_path / "token")), environ={})
    assert (await transport.request("GET", PODS)).status == 401
    assert len(api.requests("list")) == 1
    await transport.close()


async def test_watch_too_is_opened_with_a_renewed_token(api: FakeApi, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("one")
    transport = await connect(Explicit(api.url, token_file=str(tmp_path / "token")), environ={})
    api.token = "two"
    (tmp_path / "token").write_text("two")
    await api.put("a")
    lines = transport.watch(PODS, query={"resourceVersion": "100"}, idle_limit_s=10)
    assert b'"ADDED"' in await anext(lines)
    await lines.aclose()
    await transport.close()


async def test_exec_plugin_runs_once_and_again_when_refused(api: FakeApi, tmp_path: Path) -> None:
    (tmp_path / "answer").write_text(credential("one", expirationTimestamp="2999-01-01T00:00:00Z"))
    source = kubeconfig(tmp_path, api.url, plugin(tmp_path, f"cat {tmp_path}/answer"))
    transport = await connect(source, environ={})
    assert [await authorization(api, transport) for _ in range(3)] == ["Bearer one"] * 3
    assert runs(tmp_path) == 1
    api.token = "two"
    (tmp_path / "answer").write_text(credential("two"))
    assert await authorization(api, transport) == "Bearer two"
    assert runs(tmp_path) == 2
    await transport.close()


async def test_exec_plugin_with_short_tokens_is_not_run_for_each_request(api: FakeApi, tmp_path: Path) -> None:
    """kubernetes-asyncio takes a token that ends within five minutes for one that has ended."""
    ends = (datetime.now(UTC) + timedelta(minutes=3)).strftime("%Y-%m-%dT%H:%M:%SZ")
    source = kubeconfig(tmp_path, api.url, plugin(tmp_path, f"echo '{credential('t', expirationTimestamp=ends)}'"))
    transport = await connect(source, environ={})
    assert [await authorization(api, transport) for _ in range(3)] == ["Bearer t"] * 3
    assert runs(tmp_path) == 1
    await transport.close()


class WallClock:
    """A `Clock` that shows the given time."""

    def __init__(self, now: datetime) -> None:
        self._now = now

    def now(self) -> int:
        return int(self._now.timestamp() * 1000)


async def test_exec_plugin_is_run_again_before_its_token_ends(api: FakeApi, tmp_path: Path) -> None:
    body = f"echo '{credential('t', expirationTimestamp='2030-01-01T00:00:00Z')}'"
    source = kubeconfig(tmp_path, api.url, plugin(tmp_path, body))
    transport = await connect(source, clock=WallClock(datetime(2030, 1, 1, 0, 0, 0, tzinfo=UTC)), environ={})
    await authorization(api, transport)
    assert runs(tmp_path) == 2
    await transport.close()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("echo no luck >&2; exit 3", "process returned 3. no luck"),
        ("echo {", "failed to decode"),
        ("echo '{}'", "missing key"),
    ],
)
async def test_failing_exec_plugin_is_quoted(api: FakeApi, tmp_path: Path, body: str, said: str) -> None:
    source = kubeconfig(tmp_path, api.url, plugin(tmp_path, body))
    with pytest.raises(KubeConfigError, match=rf"cannot log in with context dev of .*/config: .*{said}"):
        await connect(source, environ={})


async def test_missing_exec_plugin_is_named(api: FakeApi, tmp_path: Path) -> None:
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-plugin"}}
    with pytest.raises(KubeConfigError, match=r"cannot log in with .*no-such-plugin"):
        await connect(kubeconfig(tmp_path, api.url, user), environ={})


async def test_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(KubeConfigError, match=r"cannot log in with context dev of .*absent"):
        await connect(kubeconfig(tmp_path, "https://x", {"client-certificate": "absent"}), environ={})
    with pytest.raises(KubeConfigError, match=r"cannot read the token for https://x: .*absent"):
        await connect(Explicit("https://x", token_file=str(tmp_path / "absent")), environ={})
    with pytest.raises(KubeConfigError, match=r"cannot set up TLS for https://x .*CA file .*absent"):
        await connect(Explicit("https://x", ca_file=str(tmp_path / "absent")), environ={})
    (tmp_path / "ca").write_text("no certificate")
    with pytest.raises(KubeConfigError, match=r"cannot set up TLS"):
        await connect(Explicit("https://x", ca_file=str(tmp_path / "ca")), environ={})


async def test_server_without_a_scheme_is_refused() -> None:
    with pytest.raises(KubeConfigError, match=r"cannot use the server api:6443 .* must start with https://"):
        await connect(Explicit("api:6443"), environ={})


@pytest.fixture
def account(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text("pod-token\n")
    (tmp_path / "ca.crt").write_text(AUTHORITY)
    (tmp_path / "namespace").write_text("muster-system\n")
    return tmp_path


async def test_service_account_of_a_pod(account: Path) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    transport = await connect(InCluster(str(account)), environ=environ)
    target = transport.target
    assert (target.server, target.namespace, target.origin) == ("https://[fd00::1]:443", "muster-system", "in-cluster")
    await transport.close()


async def test_outside_a_cluster_there_is_no_service_account(tmp_path: Path) -> None:
    with pytest.raises(
        KubeConfigError, match=r"cannot use the service account in .*; outside a cluster name a kubeconfig"
    ):
        await connect(InCluster(str(tmp_path)), environ={})


async def test_check_tells_an_unreachable_server() -> None:
    async with FakeApi() as gone:
        url = gone.url
    with pytest.raises(KubeConfigError, match=rf"cannot reach the API server {url}.*is it running") as caught:
        await connect(Explicit(url), check=True, environ={})
    assert caught.value.retryable


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (refusal(401, "Unauthorized"), "cannot log in to .*refuses our credential"),
        (Answer(404, b"nginx"), "HTTP 404; is that a Kubernetes API server"),
    ],
)
async def test_check_tells_a_server_that_is_none_or_does_not_know_us(api: FakeApi, answer: Answer, said: str) -> None:
    api.canned["GET", "/version"] = answer
    with pytest.raises(KubeConfigError, match=said):
        await connect(Explicit(api.url), check=True, environ={})


@pytest.mark.parametrize("answer", [Answer(200, b"{}"), refusal(403, "forbidden")])
async def test_check_wants_no_rights(api: FakeApi, answer: Answer) -> None:
    api.canned["GET", "/version"] = answer
    transport = await connect(Explicit(api.url), check=True, environ={})
    await transport.close()


async def test_proxy_of_the_environment_is_used_but_not_for_loopback(api: FakeApi, tmp_path: Path) -> None:
    api.canned["GET", "/version"] = Answer(200, b"through the proxy")
    source: Source = Explicit("http://api.invalid:8080")
    transport = await connect(source, environ={"HTTP_PROXY": api.url})
    assert (await transport.request("GET", "/version")).body == b"through the proxy"
    await transport.close()
    transport = await connect(Explicit(api.url), check=True, environ={"HTTP_PROXY": "http://127.0.0.1:1"})
    await transport.close()
