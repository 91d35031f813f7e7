"""Earlier builds of Muster, from the history of this repository: their logs, what they said of them, and themselves.

Logs and answers are in tests/histories/older. Each log is of a ``muster up`` of that build, and so is each answer:

python -m kit.older record      writes both again, by those builds
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from msgspec import Struct

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "histories" / "older"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "muster" / "builds"
TOO_OLD = FOLDER / "22c704ff.jsonl.gz"
"""Of a build whose events no build since reads."""


class Build(NamedTuple):
    """``wire``: the number of its logs; 0 where its logs name none."""

    commit: str
    wire: int

    @property
    def log(self) -> Path:
        return FOLDER / f"{self.commit}.jsonl.gz"

    @property
    def said(self) -> Path:
        """What the build itself said at the end of the log."""
        return FOLDER / f"{self.commit}.json"

    def folder(self) -> Path:
        """Its source, unpacked once."""
        made = CACHE / self.commit
        if not made.is_dir():
            packed = subprocess.run(
                ["git", "-C", str(ROOT), "archive", self.commit, "libs", "services"],
                check=True,
                capture_output=True,
            ).stdout
            CACHE.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(dir=CACHE) as half, tarfile.open(fileobj=io.BytesIO(packed)) as files:
                files.extractall(half, filter="data")
                Path(half).chmod(0o755)
                Path(half).rename(made)
                Path(half).mkdir()  # The context removes it.
        return made

    def env(self) -> dict[str, str]:
        """With it a command of Python runs this build."""
        return {"PYTHONPATH": os.pathsep.join(str(self.folder() / name) for name in ("libs", "services"))}


BUILDS = (Build("97a259e6", 0), Build("83c82fc3", 0), Build("2d0335b0", 1))
"""Of the last three resolved issues, the oldest first."""


class Standing(Struct):
    """What an upgrade must keep. ``charges``: {node of the quota tree: used}."""

    end: int
    running: list[str]
    order: dict[str, list[str]]
    charges: dict[str, dict[str, str]]

    @classmethod
    def of(cls, jobs: list[dict[str, Any]], tree: dict[str, Any]) -> Standing:
        """From ``muster ls`` and ``muster queue tree``, as JSON: what all of the builds print."""
        waiting: dict[str, list[tuple[int, str]]] = {}
        for job in jobs:
            if job["position"] is not None:
                waiting.setdefault(job["queue"], []).append((job["position"], f"{job['namespace']}/{job['name']}"))
        return cls(
            tree["sequence"],
            sorted(f"{job['kind']} {job['namespace']}/{job['name']}" for job in jobs if job["state"] == "running"),
            {queue: [name for _, name in sorted(places)] for queue, places in sorted(waiting.items())},
            {node["path"]: node["used"] for node in tree["queues"]},
        )


def _muster(build: Build, *arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "muster_cli", *arguments], env={**os.environ, **build.env()}, check=True,
        stdout=subprocess.PIPE,
    )  # fmt: skip
    return json.loads(done.stdout) if "json" in arguments else None


def record() -> None:
    for build in BUILDS:
        with TemporaryDirectory() as folder:
            data = ("--data", folder)
            _muster(build, "up", "--headless", *data, "--duration", "14", "--speed", "3", "--seed", "1")
            _muster(build, "export", *data, "--out", str(build.log))
            jobs, tree = (_muster(build, *words, *data, "-o", "json") for words in (("ls",), ("queue", "tree")))
        build.said.write_text(json.dumps({"ls": jobs, "tree": tree}, indent=1) + "\n")


if __name__ == "__main__":
    record()
