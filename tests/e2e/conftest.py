"""Fixtures of the end-to-end tests: one real control plane per session."""

from kit.controlplane.pytest_plugin import (
    control_plane,
    control_plane_binaries,
    kube,
    make_node,
    namespace,
    pytest_collection_finish,
    pytest_collection_modifyitems,
)

__all__ = [
    "control_plane",
    "control_plane_binaries",
    "kube",
    "make_node",
    "namespace",
    "pytest_collection_finish",
    "pytest_collection_modifyitems",
]
