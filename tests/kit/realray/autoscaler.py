"""Ray's own autoscaler of a RayCluster, the sidecar that KubeRay puts beside the head: a process with a certificate.

It is to the API server who its pod's service account is, by a client certificate; the roles are KubeRay's.
"""

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import trustme

from kit.realray.head import RayHead
from kit.realray.processes import Process

TICK_S = 1
"""Ray's is 5; a shorter one changes no decision."""


@dataclass
class Autoscaler:
    """``server``: https URL of the API server, ``server_ca``: what vouches for it, ``clients``: whom it believes."""

    head: RayHead
    cluster: str
    namespace: str
    server: str
    server_ca: Path
    clients: trustme.CA
    tick_s: int = TICK_S
    environment: Mapping[str, str] = field(default_factory=dict)
    _process: Process | None = field(default=None, init=False)
    _pod: str = field(default="", init=False)

    @property
    def log(self) -> Path:
        return self.head.folder / "autoscaler.log"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.running

    def start(self, pod: str = "") -> None:
        """Start it, beside the head in this pod; the same one again where none is named."""
        self._pod = pod or self._pod
        folder = self.head.folder
        account = f"system:serviceaccount:{self.namespace}:{self.cluster}"
        leaf = self.clients.issue_cert("autoscaler.invalid", common_name=account)
        certificate, key = folder / "autoscaler.crt", folder / "autoscaler.key"
        leaf.cert_chain_pems[0].write_to_path(certificate)
        leaf.private_key_pem.write_to_path(key)
        where = urlsplit(self.server)
        environment = self.head.env(
            KUBERNETES_SERVICE_HOST=str(where.hostname),
            KUBERNETES_SERVICE_PORT_HTTPS=str(where.port),
            RAY_KUBERAY_CLIENT_CERT_PATH=str(certificate),
            RAY_KUBERAY_CLIENT_KEY_PATH=str(key),
            RAY_KUBERAY_CA_CERT_PATH=str(self.server_ca),
            RAY_HEAD_POD_NAME=self._pod,
            AUTOSCALER_UPDATE_INTERVAL_S=str(self.tick_s),
            **self.environment,
        )
        command = ["ray", "kuberay-autoscaler", "--cluster-name", self.cluster, "--cluster-namespace", self.namespace]
        self._process = Process(command, self.log, environment)
        self._process.start()

    async def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End it."""
        if self._process is not None:
            await self._process.end(number, within_s=5)

    def looks(self) -> int:
        """How often it has looked, by its log: heads take no report of a new one until it is as far as the old one."""
        line = "Listing pods for RayCluster" if self.head.v2 else "Autoscaler status:"
        return self.log.read_text(errors="replace").count(line) if self.log.exists() else 0

    def tail(self, lines: int = 40) -> str:
        """Last lines of its log."""
        return self._process.tail(lines) if self._process is not None else ""
