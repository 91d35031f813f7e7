"""gRPC is loaded by the autoscaler bridge, which reads Ray heads by it, and by nothing else."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from kit.compose import REPOSITORY
from muster.core.cell.deciders import DECIDERS
from muster.runtime.endings import MISCONFIGURED

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


@pytest.mark.parametrize("module", ("grpc", "grpc.aio", "google.protobuf", "google"))
def test_without_it_the_bridge_says_what_to_install(module: str) -> None:
    run = f"import runpy, sys; sys.modules[{module!r}] = None; runpy.run_module({BRIDGE!r}, run_name='__main__')"
    found = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (MISCONFIGURED, "")
    [line] = found.stderr.splitlines()
    assert module in line and "pip install 'kube-muster[ray]'" in line


def test_another_module_that_is_missing_is_a_bug_and_shown_as_one() -> None:
    run = f"import runpy, sys; sys.modules['asyncio.tasks'] = None; runpy.run_module({BRIDGE!r}, run_name='__main__')"
    found = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, check=False)
    assert found.returncode == 1 and "Traceback" in found.stderr and "kube-muster[ray]" not in found.stderr
