"""`muster doctor` names the tools of an installation that are too old, by the table of the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.compose import REPOSITORY
from muster_cli.findings import Finding
from muster_cli.toolchecks import TOOLS, tool_findings

PAGE = REPOSITORY / "docs" / "howto" / "install.md"


async def found(folder: Path, monkeypatch: pytest.MonkeyPatch, **programs: str) -> dict[str, Finding]:
    for name, script in programs.items():
        program = folder / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin" if programs else str(folder))
    return {finding.title: finding for finding in await tool_findings() if finding.title != "nats-server"}


@pytest.mark.parametrize(
    ("helm", "engine", "compose", "grades"),
    [
        ("v3.16.4+gcba123", "25.0.9", "2.25.0", ["note", "note", "note"]),
        ("v3.17.0+g301108e", "26.0.0", "2.26.0", ["ok", "ok", "ok"]),
        ("v4.0.1", "28.3.2-ce", "v2.40.1-desktop.1", ["ok", "ok", "ok"]),
    ],
)
async def test_a_tool_that_is_too_old_is_named_and_no_error(
    helm: str, engine: str, compose: str, grades: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker = f'if [ "$1" = compose ]; then echo {compose}; else echo {engine}; fi'
    findings = await found(tmp_path, monkeypatch, helm=f"echo {helm}", docker=docker)
    assert [finding.grade for finding in findings.values()] == grades
    assert all(finding.fix for finding in findings.values() if finding.grade == "note")


async def test_nothing_is_said_of_a_tool_that_is_missing_or_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await found(tmp_path, monkeypatch) == {}
    assert await found(tmp_path, monkeypatch, helm="echo who knows", docker="exit 1") == {}


def test_the_page_names_the_same_versions() -> None:
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    told = {row[0].partition(",")[0]: row[1] for row in rows if row[-1].strip("| ") == "checks"}
    assert {name: version for name, version in told.items() if name != "Kubernetes"} == {
        tool.name: ".".join(map(str, tool.version)) for tool in TOOLS
    }
