"""The tools of an installation that are found here, and the versions that Muster needs of them."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess

from msgspec import Struct

from muster.model.language import marked, say, translated
from muster_cli.commands.version import nats_server_version
from muster_cli.findings import Finding

PATIENCE_S = 5.0
"""For an answer: `docker version` asks the daemon."""


class Tool(Struct, frozen=True):
    """A row of the table of versions in ``docs/howto/install.md``. ``command``: prints the version."""

    name: str
    version: tuple[int, int]
    purpose: str
    why: str
    command: tuple[str, ...]


TOOLS = (
    Tool("Helm", (3, 17), marked("the chart"), "--take-ownership", ("helm", "version", "--short")),
    Tool(
        "Docker Engine",
        (26, 0),
        "docker-compose.yml",
        marked("mounts with subpath"),
        ("docker", "version", "--format", "{{.Server.Version}}"),
    ),
    Tool(
        "Docker Compose",
        (2, 26),
        "docker-compose.yml",
        marked("mounts with subpath"),
        ("docker", "compose", "version", "--short"),
    ),
)


async def tool_findings() -> list[Finding]:
    """Of nats-server, and of every tool that is found. A tool that is missing or silent may not be needed here."""
    findings = await asyncio.gather(
        asyncio.to_thread(_nats_server), *(asyncio.to_thread(_examined, tool) for tool in TOOLS)
    )
    return [finding for finding in findings if finding is not None]


def _nats_server() -> Finding:
    version = nats_server_version()
    if version:
        return Finding("ok", "nats-server", say("{version}, for `muster up`", version=version))
    return Finding(
        "note", "nats-server", say("not found: `muster up` needs it"), say("install the extra kube-muster[local]")
    )


def _examined(tool: Tool) -> Finding | None:
    version = _version(tool)
    if version is None:
        return None
    shown, needed = ".".join(map(str, version)), ".".join(map(str, tool.version))
    purpose = translated(tool.purpose)
    if version[:2] >= tool.version:
        return Finding("ok", tool.name, say("{version}, for {purpose}", version=shown, purpose=purpose))
    detail = say(
        "{version}: {purpose} needs {needed} for {why}",
        version=shown,
        purpose=purpose,
        needed=needed,
        why=translated(tool.why),
    )
    way_out = say("upgrade {tool}, unless you install without {purpose}", tool=tool.name, purpose=purpose)
    return Finding("note", tool.name, detail, way_out)


def _version(tool: Tool) -> tuple[int, ...] | None:
    program = shutil.which(tool.command[0])
    if program is None:
        return None
    try:
        answer = subprocess.run(  # noqa: S603
            [program, *tool.command[1:]], capture_output=True, text=True, timeout=PATIENCE_S, check=True
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    numbers = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", answer.stdout)
    return tuple(int(number) for number in numbers.groups() if number) if numbers else None
