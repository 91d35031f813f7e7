"""What a service loads: each megabyte of it is there in every pod."""

import subprocess
import sys

import pytest

DECISIONS = ("muster.core.cell.deciders", "muster.told.readmodel", "muster.core.preemption", "muster.told.views")
SERVICES = ("muster_watcher", "muster_actuator", "muster_preemptor", "muster_publisher")


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_loads_no_terminal_and_no_models(service: str) -> None:
    code = f"import sys, {service}.__main__; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = ("rich", "pygments", "kubernetes_asyncio", "grpc")
    assert [name for name in found.stdout.split() if name.partition(".")[0] in heavy] == []


@pytest.mark.parametrize("runner", ("watching.WatcherRunner", "acting.ActuatorRunner"))
def test_what_meets_the_api_server_loads_no_decisions(runner: str) -> None:
    module, _, name = runner.partition(".")
    imports = f"import sys, muster_watcher.__main__; from muster.runtime.runners.{module} import {name}"
    code = f"{imports}; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [name for name in found.stdout.split() if name.startswith(DECISIONS)] == []


def test_the_terminal_has_what_it_needs_after_the_logs_are_set_up() -> None:
    code = "import muster.telemetry.logs, rich.console, structlog; muster.telemetry.logs.configure(style='console')"
    subprocess.run([sys.executable, "-c", code], check=True)
