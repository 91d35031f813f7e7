"""What a service loads: each megabyte of it is there in every pod."""

import subprocess
import sys

import pytest

SERVICES = ("muster_watcher", "muster_actuator", "muster_preemptor", "muster_publisher")


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_loads_no_terminal_and_no_models(service: str) -> None:
    code = f"import sys, {service}.__main__; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = ("rich", "pygments", "kubernetes_asyncio", "grpc")
    assert [name for name in found.stdout.split() if name.partition(".")[0] in heavy] == []


def test_the_terminal_has_what_it_needs_after_the_logs_are_set_up() -> None:
    code = "import muster.telemetry.logs, rich.console, structlog; muster.telemetry.logs.configure(style='console')"
    subprocess.run([sys.executable, "-c", code], check=True)
