"""Builds and starts a real Kubernetes control plane on this machine.

`python -m kit.controlplane build` fills the cache, `... run` starts everything by hand; tests take
the fixtures of `kit.controlplane.pytest_plugin`, or a `ControlPlane` of their own when they need
other users, arguments or fewer components.
"""

from kit.controlplane.plane import ControlPlane
from kit.controlplane.process import ControlPlaneError
from kit.controlplane.settings import User
from kit.controlplane.toolchain import BuildError

__all__ = ["BuildError", "ControlPlane", "ControlPlaneError", "User"]
