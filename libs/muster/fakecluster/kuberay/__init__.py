"""The KubeRay operator, simulated: one implementation for the simulator, the demo and tests on a real API server.

`rayjob`, `raycluster` and `rayservice` are pure functions from objects and a time to operations. `operator` and
`serviceoperator` hear of changes, keep what the functions need, and play Ray itself: how long a Ray job runs and how it
ends is written on the RayJob (`settings`), since nothing real runs.
"""

from muster.fakecluster.kuberay.operator import KubeRayOperator
from muster.fakecluster.kuberay.serviceoperator import RayServiceOperator
from muster.fakecluster.kuberay.settings import OUTCOME, RUNTIME, OperatorSettings

__all__ = ["OUTCOME", "RUNTIME", "KubeRayOperator", "OperatorSettings", "RayServiceOperator"]
