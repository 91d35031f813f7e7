"""Writes the files and command lines that the servers of a control plane are started with.

Called by `ControlPlane`. Pure of processes: it only writes into the folder it is given. Every
server listens on 127.0.0.1 alone.
"""

import base64
import csv
import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import yaml

LOOPBACK = "127.0.0.1"
KWOK_CONFIG = Path(__file__).with_name("kwok.yaml")

#: A node counts as lost after this long without a heartbeat; kwok.yaml sends one each 20 to 25 s.
NODE_GRACE_SECONDS = 100
#: Requests in flight that the API server takes before it answers 429: (all, changing ones).
MAX_IN_FLIGHT = (4000, 2000)
#: Requests per second that controllers and scheduler allow themselves.
CLIENT_RATE = 1000


#: What only a plane that says otherwise goes without: the expressions of each policy are checked for each kind, which
#: takes half a minute of a processor for those of deploy/.
NO_TYPE_CHECKS = "--controllers=-validatingadmissionpolicy-status-controller"


@dataclass(frozen=True)
class User:
    """Somebody the API server knows by a static token from its start on."""

    name: str
    groups: tuple[str, ...] = ()
    token: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)


def token_file(path: Path, users: Iterable[User]) -> None:
    """Write the API server's table of static tokens."""
    with path.open("w", newline="") as out:
        rows = csv.writer(out)
        for user in users:
            rows.writerow([user.token, user.name, user.name, ",".join(user.groups)])
    path.chmod(0o600)


def kubeconfig(path: Path, *, url: str, ca_file: Path, user: User) -> None:
    """Write a kubeconfig that makes any Kubernetes client act as `user`."""
    authority = base64.b64encode(ca_file.read_bytes()).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": url, "certificate-authority-data": authority}}],
        "users": [{"name": user.name, "user": {"token": user.token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": user.name}}],
        "current-context": "test",
    }
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    path.chmod(0o600)


def service_account_key(path: Path) -> None:
    """Write a fresh P-256 private key in PEM: the API server signs service account tokens with it.

    A private key of SEC 1 is its number and the name of its curve; the reader works out the public
    half. So neither openssl nor a cryptography package is needed, and the repository has no key.
    """
    number = bytearray(secrets.token_bytes(32))
    # Below the order of the curve and not zero.
    number[0] = number[0] & 0x7F | 0x01
    der = bytes.fromhex("30310201010420") + number + bytes.fromhex("a00a06082a8648ce3d030107")
    body = base64.encodebytes(der).decode()
    path.write_text(f"-----BEGIN EC PRIVATE KEY-----\n{body}-----END EC PRIVATE KEY-----\n")
    path.chmod(0o600)


def scheduler_config(path: Path, *, kubeconfig: Path) -> None:
    """Write the scheduler's configuration: one replica, quick retries."""
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {
            "kubeconfig": str(kubeconfig),
            "qps": CLIENT_RATE,
            "burst": 2 * CLIENT_RATE,
        },
        "podInitialBackoffSeconds": 1,
        "podMaxBackoffSeconds": 2,
    }
    path.write_text(json.dumps(config, indent=1))


def etcd_arguments(folder: Path, *, client_port: int, peer_port: int) -> list[str]:
    """One member, which does not wait for the disk: a test's data need not survive the machine."""
    client, peer = f"http://{LOOPBACK}:{client_port}", f"http://{LOOPBACK}:{peer_port}"
    return [
        "--name=test",
        f"--data-dir={folder / 'etcd'}",
        "--unsafe-no-fsync=true",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=test={peer}",
        f"--quota-backend-bytes={4 * 1024**3}",
        "--log-level=warn",
    ]


def apiserver_arguments(folder: Path, *, port: int, etcd_port: int) -> list[str]:
    """RBAC, static tokens, a certificate it makes itself in `folder`/tls."""
    everything, changes = MAX_IN_FLIGHT
    return [
        f"--etcd-servers=http://{LOOPBACK}:{etcd_port}",
        f"--secure-port={port}",
        f"--bind-address={LOOPBACK}",
        # A loopback address may not be published as the endpoint of the `kubernetes` service.
        f"--advertise-address={LOOPBACK}",
        "--endpoint-reconciler-type=none",
        f"--cert-dir={folder / 'tls'}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={folder / 'service-account.pem'}",
        f"--service-account-signing-key-file={folder / 'service-account.pem'}",
        f"--token-auth-file={folder / 'tokens.csv'}",
        "--authorization-mode=RBAC",
        # Loopback, as KWOK's pod addresses: a client that calls a service stays on this machine.
        "--service-cluster-ip-range=127.32.0.0/16",
        # It would refuse pods until the namespace's default service account exists.
        "--disable-admission-plugins=ServiceAccount",
        f"--max-requests-inflight={everything}",
        f"--max-mutating-requests-inflight={changes}",
        "--allow-privileged=true",
        "--profiling=false",
    ]


def controller_manager_arguments(*, port: int, kubeconfig: Path) -> list[str]:
    """All controllers, each under its own account, as on a real cluster.

    So admission policies see the same user names there and here.
    """
    return [
        f"--kubeconfig={kubeconfig}",
        f"--secure-port={port}",
        f"--bind-address={LOOPBACK}",
        "--controllers=*",
        "--use-service-account-credentials=true",
        # With a lease it would end itself when the API server is away for ten seconds.
        "--leader-elect=false",
        f"--kube-api-qps={CLIENT_RATE}",
        f"--kube-api-burst={2 * CLIENT_RATE}",
        f"--node-monitor-grace-period={NODE_GRACE_SECONDS}s",
        "--profiling=false",
    ]


def scheduler_arguments(*, port: int, config: Path) -> list[str]:
    """Everything but the address is in the configuration file."""
    return [f"--config={config}", f"--secure-port={port}", f"--bind-address={LOOPBACK}"]


def kwok_arguments(*, port: int, kubeconfig: Path) -> list[str]:
    """Manages every node there is, by the stages of kwok.yaml."""
    return [
        f"--config={KWOK_CONFIG}",
        f"--kubeconfig={kubeconfig}",
        f"--server-address={LOOPBACK}:{port}",
    ]
