"""An API server in memory, behind the same ApiTransport as a real one.

What it leaves out, knowingly: OpenAPI, server-side apply, dry runs, field ownership (managedFields), deletecollection,
schemas of custom resources (nothing is pruned or type-checked; of defaults only Ray's), CEL rules, quotas and webhooks,
several users, disruption budgets, most defaults of built-in kinds, and the waiting that a real server and its
controllers do. The contract tests compare the rest with a real kube-apiserver.
"""

from muster.fakecluster.apiserver.deletion import DeleteOptions
from muster.fakecluster.apiserver.faults import FaultDraw, FaultRates
from muster.fakecluster.apiserver.kinds import KINDS, ResourceRules
from muster.fakecluster.apiserver.server import SimApiServer
from muster.fakecluster.apiserver.status import Obj, StatusError
from muster.fakecluster.apiserver.store import StoredChange
from muster.fakecluster.apiserver.transport import SimTransport

__all__ = [
    "KINDS",
    "DeleteOptions",
    "FaultDraw",
    "FaultRates",
    "Obj",
    "ResourceRules",
    "SimApiServer",
    "SimTransport",
    "StatusError",
    "StoredChange",
]
