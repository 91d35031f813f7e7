"""gRPC is loaded by the autoscaler bridge, which reads Ray heads by it, and by nothing else."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

from kit.compose import REPOSITORY
from muster.core.deciders import DECIDERS

BRIDGE = "muster_autoscaler_bridge"
OTHERS = sorted({path.parent.name for path in Path(REPOSITORY, "services").glob("muster_*/__main__.py")} - {BRIDGE})


def loaded_by(*services: str) -> subprocess.CompletedProcess[str]:
    """Import services in a process of their own; it prints whether that loads gRPC."""
    code = f"import sys, {', '.join(f'{each}.__main__' for each in services)}; print('grpc' in sys.modules)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_no_other_service_needs_it() -> None:
    assert len(OTHERS) >= len(DECIDERS)
    found = loaded_by(*OTHERS)
    assert (found.returncode, found.stdout, found.stderr) == (0, "False\n", "")


def test_the_bridge_has_it() -> None:
    assert loaded_by(BRIDGE).stdout == "True\n"


def test_it_is_an_extra() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert not [each for each in project["dependencies"] if each.startswith(("grpcio", "protobuf"))]
    assert [each for each in project["optional-dependencies"]["ray"] if each.startswith("grpcio")]
