"""What `muster doctor` says to an operator who has the key of user `cli` and a kubeconfig."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from pathlib import Path

from kit.badday.cluster import Cluster
from kit.badday.nats import Nats
from kit.compose import runnable

LIMIT_S = 45.0


class Doctor:
    def __init__(self, folder: Path, cluster: Cluster, nats: Nats) -> None:
        self._argv = [
            *runnable(["muster", "doctor", "-o", "json", "--url", nats.url]),
            *("--kubeconfig", str(cluster.plane.kubeconfig), "--context", "test"),
        ]
        self._env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "MUSTER_NATS_NKEY_FILE": str(nats.keys.seed("cli")),
            "MUSTER_NATS_CA_FILE": str(nats.keys.ca_file),
            "MUSTER_NATS_INBOX_PREFIX": "_INBOX_cli",
            "MUSTER_NATS_API_PREFIX": "$JS.MUSTER.API",
        }

    async def ask(self) -> list[str]:
        """Its problems, a line each; one line where there is none, or no answer."""
        process = await asyncio.create_subprocess_exec(
            *self._argv, env=self._env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        try:
            async with asyncio.timeout(LIMIT_S):
                out, err = await process.communicate()
        except TimeoutError:
            return [f"no answer within {LIMIT_S:.0f} s"]
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        return said(out.decode(errors="replace"), err.decode(errors="replace"))


def said(out: str, err: str) -> list[str]:
    try:
        found = json.loads(out)
    except ValueError:
        return [line for line in (out + err).splitlines() if line.strip()][-6:] or ["nothing"]
    return [json.dumps(found)]
