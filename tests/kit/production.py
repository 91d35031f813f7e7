"""A NATS as in production: the configuration files of deploy/nats, TLS, and a key pair for every user.

What differs from the files is what a test machine forces on them: ports, folders, names of servers.
"""

import asyncio
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Self

import nkeys
import trustme

from kit.controlplane.process import tied
from kit.waiting import until
from muster.bus.server import find_binary, free_port
from muster.runtime.config import Config
from muster.runtime.natsaccounts import API, inbox, nkey_setting

FILES = Path(__file__).parents[2] / "deploy" / "nats"


class Keys:
    """A key pair for every user of an accounts file, and certificates for the servers, in a folder."""

    def __init__(self, folder: Path, accounts: str) -> None:
        self.folder = folder
        names = sorted(set(re.findall(r"\$MUSTER_NKEY_(\w+)", accounts)))
        lines = []
        for name in names:
            pair = nkeys.from_seed(nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER))
            self.seed_file(name.lower()).write_bytes(pair.seed)
            lines.append(f'{nkey_setting(name)}: "{pair.public_key.decode()}"\n')
        (folder / "keys.conf").write_text("".join(lines))
        (folder / "accounts.conf").write_text(accounts)
        authority = trustme.CA()
        certificate = authority.issue_cert("127.0.0.1", "localhost")
        authority.cert_pem.write_to_path(str(self.ca_file))
        certificate.private_key_pem.write_to_path(str(folder / "tls.key"))
        certificate.cert_chain_pems[0].write_to_path(str(folder / "tls.crt"))

    @property
    def ca_file(self) -> Path:
        return self.folder / "ca.crt"

    def seed_file(self, user: str) -> Path:
        return self.folder / f"{user}.nk"


class ProductionNats:
    """One server that runs deploy/nats/server.conf. ``routes``: ports of its cluster's servers; none: it is alone.

    ``data``: the folder that its volume is, one of its own unless given.
    """

    def __init__(
        self,
        keys: Keys,
        *,
        name: str = "nats-0",
        route: int = 0,
        routes: tuple[int, ...] = (),
        data: Path | None = None,
    ) -> None:
        self.keys = keys
        self.name = name
        self.port = free_port()
        self.monitor_port = free_port()
        self._folder = keys.folder / name
        self._folder.mkdir()
        self.data = data or self._folder
        self._config = keys.folder / f"{name}.conf"
        text = (FILES / "server.conf").read_text().replace("/etc/nats/tls/", f"{keys.folder}/")
        text = text.replace('"/data/jetstream"', f'"{self.data}/store"')
        head, _, cluster = text.partition("\ncluster {")
        if routes:
            urls = "\n".join(f'"nats://127.0.0.1:{port}"' for port in routes)
            cluster = re.sub(r"routes: \[.*?\]", f"routes: [\n{urls}\n]", cluster, flags=re.DOTALL)
            head += "\ncluster {" + cluster.replace("0.0.0.0:6222", f"127.0.0.1:{route}")
        self._config.write_text(head)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def config(self, user: str, *, url: str = "", **changes: object) -> Config:
        """The configuration a service has that signs in as ``user``."""
        return Config(
            nats_url=url or self.url,
            nats_nkey_file=str(self.keys.seed_file(user)),
            nats_ca_file=str(self.keys.ca_file),
            nats_inbox_prefix=inbox(user),
            nats_api_prefix=API,
            **changes,
        )

    async def start(self) -> None:
        self._launch()
        await until(self._listening, timeout_s=60.0)

    def _launch(self) -> None:
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *tied(),
                    *(str(find_binary()), "-c", str(self._config), "-a", "127.0.0.1", "-p", str(self.port)),
                    *("-m", str(self.monitor_port)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={"NATS_SERVER_NAME": self.name},
            )

    async def _listening(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log()
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.close()
        return True

    def reload(self) -> None:
        """Have it read its configuration again: with the next word of its log that it did, it has."""
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)

    def log(self) -> str:
        """What it has said since its start."""
        return (self._folder / "log").read_text()

    async def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            await asyncio.to_thread(self._process.wait, 20)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
