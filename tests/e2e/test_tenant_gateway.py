"""A tenant with a kubeconfig alone, on a real API server: the command line over the gateway tells of one namespace.

TokenReview, SubjectAccessReview and the tokens are those of the server; the names of all others are forged, so that one
of them in an answer, a stream or an error is a leak.
"""

import asyncio
import base64
import json
import shlex
import stat
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import aiohttp
import pytest
import yaml
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, utils

from kit.chaos import NAMESPACES, Chaos
from kit.cli import Cli, Result
from kit.compose import REPOSITORY
from kit.controlplane import ControlPlane
from kit.deployed import objects
from kit.foreign import foreign_words, forged, leak
from kit.kubeclient import KubeClient, Object
from kit.pages import blocks, lines
from kit.recorded import questions
from kit.waiting import until
from muster.kube.config import connect
from muster.kube.sources import Explicit
from muster.runtime.clock import SystemClock
from muster.serving.access import Reviewed
from muster.serving.answering import Questions
from muster.serving.http import GatewayServer
from muster_cli.exits import FAILED, FORBIDDEN, NOT_FOUND, OK

PAGE = REPOSITORY / "docs/howto/gateway.md"
OWN, OTHER, SYSTEM = "zq-video-0", "zq-text-0", "muster-system"
ACCOUNT = {"apiVersion": "v1", "kind": "ServiceAccount"}


@pytest.fixture(scope="module")
def log() -> Chaos:
    """A log in which both namespaces have jobs."""
    chaos = Chaos(Random(5))
    chaos.run(steps=200)
    return chaos


@pytest.fixture
async def cluster(control_plane: ControlPlane, kube: KubeClient) -> ControlPlane:
    """The gateway's own rights as they are shipped, two namespaces, and ann, who may look at one of them."""
    for name in (SYSTEM, OWN, OTHER):
        await kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    for each in objects("rbac"):
        if each["metadata"]["name"] == "muster-gateway":
            await kube.apply(each)
    for name, namespace in (("ann", OWN), ("bare", SYSTEM), ("gone", OWN)):
        await kube.apply({**ACCOUNT, "metadata": {"name": name, "namespace": namespace}})
    rbac = "rbac.authorization.k8s.io"
    await kube.apply(
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "ann", "namespace": OWN},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "ServiceAccount", "name": each, "namespace": OWN} for each in ("ann", "gone")],
        }
    )
    return control_plane


async def token(kube: KubeClient, name: str, namespace: str) -> str:
    """As ``kubectl create token`` has it made."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    made: str = (await kube.request("POST", path, body=body))["status"]["token"]
    return made


@asynccontextmanager
async def gateway(plane: ControlPlane, own: str, log: Chaos, folder: Path) -> AsyncIterator[tuple[str, Questions]]:
    """Served with reviews by the real server, asked with the token of a ServiceAccount; its address."""
    asked = questions(forged(log.bench.log, NAMESPACES), folder)
    transport = await connect(Explicit(plane.url, token=own, ca_file=str(plane.ca_file)))
    access = Reviewed(transport, SystemClock())
    server = GatewayServer(asked, access, asked._clock, folder, "127.0.0.1", 0)
    await server.start()
    try:
        yield f"http://127.0.0.1:{server.port}", asked
    finally:
        await server.stop()
        await transport.close()


class Tenant:
    """Runs commands with a kubeconfig of one user, and no key of NATS."""

    def __init__(self, cli: Cli, plane: ControlPlane, folder: Path, url: str) -> None:
        self._cli, self._server, self._folder, self.url = cli, plane.url, folder, url

    async def run(self, user: Object, *args: str) -> Result:
        config = {
            "current-context": "dev",
            "contexts": [{"name": "dev", "context": {"cluster": "k", "user": "u", "namespace": OWN}}],
            "clusters": [{"name": "k", "cluster": {"server": self._server, "insecure-skip-tls-verify": True}}],
            "users": [{"name": "u", "user": user}],
        }
        path = self._folder / f"config-{abs(hash(json.dumps(user)))}"
        path.write_text(yaml.safe_dump(config))
        return await self._cli.run(*args, KUBECONFIG=str(path), MUSTER_GATEWAY_URL=self.url)


def plugin(folder: Path, made: str) -> Object:
    """A user whose token comes from a program, as those of clouds do."""
    script = folder / "login"
    status = {"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1", "status": {"token": made}}
    script.write_text(f"#!/bin/sh\nprintf '%s' '{json.dumps(status)}'\n")
    script.chmod(script.stat().st_mode | stat.S_IEXEC)
    found = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(script), "interactiveMode": "Never"}
    return {"exec": found}


def resigned(made: str, key: ec.EllipticCurvePrivateKey, **claims: object) -> str:
    """A token with other claims, signed by a key."""
    head, body, _ = made.split(".")
    payload = json.loads(base64.urlsafe_b64decode(body + "=="))
    parts = [head, _encoded(json.dumps({**payload, **claims}).encode())]
    r, s = utils.decode_dss_signature(key.sign(".".join(parts).encode(), ec.ECDSA(hashes.SHA256())))
    return ".".join([*parts, _encoded(r.to_bytes(32, "big") + s.to_bytes(32, "big"))])


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


async def test_a_tenant_with_a_kubeconfig_sees_its_namespace_and_no_word_of_others(
    cluster: ControlPlane, kube: KubeClient, log: Chaos, tmp_path: Path
) -> None:
    own, ann = await token(kube, "muster-gateway", SYSTEM), await token(kube, "ann", OWN)
    async with gateway(cluster, own, log, tmp_path) as (url, asked):
        state = asked.live.state
        words = foreign_words(asked, OWN)
        assert OTHER in words, "the judge knows what is to be left out"
        pattern = leak(words)
        mine = [record.ref.key for record in state.records.values() if record.ref.namespace == OWN]
        hidden = next(record.ref for record in state.records.values() if record.ref.namespace == OTHER)
        queue, foreign = state.queues.ledger.leaf_of[OWN], state.queues.ledger.leaf_of[OTHER]
        job = yaml.safe_load((REPOSITORY / "services/muster_cli/samples/rayjob.yaml").read_text())
        for name in (OWN, OTHER):
            text = json.dumps({**job, "metadata": {"name": "new", "namespace": name}})
            (tmp_path / f"{name}.json").write_text(text)
        tenant = Tenant(Cli(tmp_path), cluster, tmp_path, url)
        user = plugin(tmp_path, ann)
        expected = {
            ("ls", "--since", "30d"): (OK, mine[-1]),
            ("ls", "--since", "30d", "-o", "json"): (OK, mine[-1].partition("/")[2]),
            ("why", mine[-1]): (OK, mine[-1]),
            ("why", mine[-1].partition("/")[2], "--at", str(state.seq)): (OK, mine[-1]),
            ("position", mine[-1]): (OK, mine[-1]),
            ("queue", "tree", "-o", "json"): (OK, queue),
            ("queue", "ls"): (OK, queue.rpartition("/")[2]),
            ("story", queue): (OK, "queued"),
            ("ask", str(tmp_path / f"{OWN}.json")): (OK, f"{OWN}/new"),
            ("ask", str(tmp_path / f"{OTHER}.json")): (OK, "no quota that you may see"),
            ("why", f"{OWN}/none-such"): (NOT_FOUND, "or none that you may see"),
            ("why", hidden.name): (NOT_FOUND, "or none that you may see"),
            ("why", hidden.key): (FORBIDDEN, f"you may not see namespace {OTHER}: the right to see a namespace is the"),
            ("ls", "-n", OTHER): (FORBIDDEN, f"kubectl auth can-i list pods -n {OTHER}"),
            ("ls", "-n", "no-such-namespace"): (FORBIDDEN, "kubectl auth can-i list pods -n no-such-namespace"),
            ("ls", "--queue", foreign): (NOT_FOUND, "there is no queue"),
            ("story", foreign): (NOT_FOUND, "or none that you may see"),
        }
        placed = {"video/JOB": mine[-1], "video": OWN, "root/algorithm/video": queue}
        placed["job.yaml"] = str(tmp_path / f"{OWN}.json")
        shown = [shlex.split(line)[1:] for block in blocks(PAGE) for line in lines(block) if line.startswith("muster ")]
        page = [tuple(placed.get(word, word) for word in words if "--gateway" not in words) for words in shown]
        expected |= {args: (OK, "") for args in page if args}
        for args, (code, word) in expected.items():
            found = await tenant.run(user, *args)
            said = found.out + found.err
            assert (found.code, word in said) == (code, True), (args, said)
            for echoed in args:  # What the tenant has said itself, and its parts.
                said = said.replace(echoed, "")
                said = said.replace(f"namespace {OTHER}", "").replace(f"-n {OTHER}", "").replace(f"{OWN}/{echoed}", "")
            assert pattern.search(said) is None, (args, said)
        async with (
            aiohttp.ClientSession(headers={"Authorization": f"Bearer {ann}", "Last-Event-ID": "1-1"}) as session,
            session.get(f"{url}/api/v1/stream") as answer,
        ):
            async with asyncio.timeout(60):
                message = (await answer.content.readuntil(b"\n\n")).decode()
            assert OWN in message
            assert pattern.search(message) is None, message


async def test_a_token_that_the_server_does_not_know_opens_nothing(
    cluster: ControlPlane, kube: KubeClient, log: Chaos, tmp_path: Path
) -> None:
    own, ann, gone = [await token(kube, *each) for each in (("muster-gateway", SYSTEM), ("ann", OWN), ("gone", OWN))]
    await kube.delete("v1", "ServiceAccount", "gone", OWN)

    async def unknown() -> bool:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": gone}}
        found = await kube.request("POST", "/apis/authentication.k8s.io/v1/tokenreviews", body=body)
        return not found["status"].get("authenticated")

    await until(unknown, what="the server to forget the account")
    signing = serialization.load_pem_private_key((cluster.folder / "service-account.pem").read_bytes(), None)
    assert isinstance(signing, ec.EllipticCurvePrivateKey)
    hour_ago = int(time.time()) - 3_600
    over = resigned(ann, signing, iat=hour_ago - 3_600, nbf=hour_ago - 3_600, exp=hour_ago)
    (tmp_path / "token").write_text(ann)
    async with gateway(cluster, own, log, tmp_path) as (url, _):
        tenant = Tenant(Cli(tmp_path), cluster, tmp_path, url)
        good = resigned(ann, signing)
        assert (await tenant.run({"token": good}, "queue", "tree")).code == OK, "the judge signs as the server does"
        assert (await tenant.run({"tokenFile": str(tmp_path / "token")}, "queue", "tree")).code == OK
        forged_ones = {
            "over": over,
            "of another key": resigned(ann, ec.generate_private_key(ec.SECP256R1())),
            "of a deleted account": gone,
            "no token at all": "x",
        }
        for what, made in forged_ones.items():
            found = await tenant.run({"token": made}, "queue", "tree")
            assert (found.code, found.out) == (FORBIDDEN, ""), what
            assert f"the gateway {url} refuses the token of context dev" in found.err, found.err
            async with (
                aiohttp.ClientSession(headers={"Authorization": f"Bearer {made}"}) as session,
                session.get(f"{url}/api/v1/stream") as answer,
            ):
                assert answer.status == 401, what
        pair = {f"client-{each}-data": base64.b64encode(b"x").decode() for each in ("certificate", "key")}
        for user in (pair, {"username": "ann", "password": "secret"}):
            found = await tenant.run(user, "queue", "tree")
            assert found.code == FORBIDDEN
            assert "asks for a token, and context dev" in found.err
        assert "kubectl config set-credentials USER --token" in found.err


async def test_a_gateway_that_may_not_ask_says_which_right_it_lacks(
    cluster: ControlPlane, kube: KubeClient, log: Chaos, tmp_path: Path
) -> None:
    bare, ann = await token(kube, "bare", SYSTEM), await token(kube, "ann", OWN)
    async with gateway(cluster, bare, log, tmp_path) as (url, _):
        found = await Tenant(Cli(tmp_path), cluster, tmp_path, url).run({"token": ann}, "queue", "tree")
    assert (found.code, found.out) == (FAILED, "")
    assert "the gateway may not ask the API server about you (HTTP 403 on a TokenReview)" in found.err
    assert "ClusterRole muster-gateway" in found.err
