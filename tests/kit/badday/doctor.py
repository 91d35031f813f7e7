"""What `muster doctor` says to an operator who has the key of user `cli` and a kubeconfig."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from kit.badday.cluster import Cluster
from kit.badday.nats import Nats
from kit.compose import runnable

LIMIT_S = 45.0


class Doctor:
    def __init__(self, folder: Path, cluster: Cluster, nats: Nats, shim: Mapping[str, str]) -> None:
        self._argv = [
            *runnable(["muster", "doctor", "-o", "json", "--url", nats.url]),
            *("--kubeconfig", str(cluster.plane.kubeconfig), "--context", "test"),
        ]
        self._usual: set[str] = set()
        self._env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            **shim,
            "MUSTER_NATS_NKEY_FILE": str(nats.keys.seed("cli")),
            "MUSTER_NATS_CA_FILE": str(nats.keys.ca_file),
            "MUSTER_NATS_INBOX_PREFIX": "_INBOX_cli",
            "MUSTER_NATS_API_PREFIX": "$JS.MUSTER.API",
        }

    async def learn(self) -> None:
        """What it says on a good day is not about a fault."""
        self._usual = {key for key, _ in await self._findings()}

    async def ask(self) -> list[str]:
        """What it finds and did not find on a good day, a line each; one line where there is nothing, or no answer."""
        found = await self._findings()
        return [line for key, line in found if key not in self._usual] or ["no problem found"]

    async def _findings(self) -> list[tuple[str, str]]:
        """[(what it is about, all that is said of it)] of what is not well"""
        process = await asyncio.create_subprocess_exec(
            *self._argv, env=self._env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        try:
            async with asyncio.timeout(LIMIT_S):
                out, err = await process.communicate()
        except TimeoutError:
            return [("late", f"no answer within {LIMIT_S:.0f} s")]
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        try:
            found = json.loads(out)["findings"]
        except (ValueError, KeyError):
            lines = [line for line in (out + err).decode(errors="replace").splitlines() if line.strip()]
            return [("error", line) for line in lines[-6:]] or [("error", "it says nothing")]
        return [
            (f"{each['grade']} {each['title']}", ": ".join(filter(None, (each["title"], each["detail"], each["fix"]))))
            for each in found
            if each["grade"] != "ok"
        ]
