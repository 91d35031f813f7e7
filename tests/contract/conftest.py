from kit.api import api, pytest_collection_modifyitems, real_api, simulated_api
from kit.controlplane.pytest_plugin import (
    control_plane,
    control_plane_binaries,
    pytest_collection_finish,
    pytest_runtest_teardown,
)
from kit.nats import cell, connection, js, nats_server

__all__ = [
    "api",
    "cell",
    "connection",
    "control_plane",
    "control_plane_binaries",
    "js",
    "nats_server",
    "pytest_collection_finish",
    "pytest_collection_modifyitems",
    "pytest_runtest_teardown",
    "real_api",
    "simulated_api",
]
