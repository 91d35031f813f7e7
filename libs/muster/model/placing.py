"""The demands of a pod's spec on a node and on the pods beside it, as far as a filter reads the spec.

Only demands that can forbid a node are kept; preferences are not. An empty ``PodRules`` may run on any node with room.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from muster.model.problem import FieldProblem

Operator = Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]

HOSTNAME = "kubernetes.io/hostname"
"""The label that tells single nodes apart."""
GPU = "nvidia.com/gpu"
"""The resource whose devices can be shared."""
GPU_MEMORY = "nvidia.com/gpu.memory"
"""The label by which a node says how much memory each of its devices has, MiB."""
GPU_PRODUCT = "nvidia.com/gpu.product"
"""The label by which a node says of which product its devices are."""
WHOLE = 1000
"""One device, in thousandths."""

GpuAmounts = dict[str, int]
"""{amount of GPU memory: devices}: ``8000`` (MiB), or ``8000 NVIDIA-A10,NVIDIA-L4`` for a pod that runs on these
products alone"""


def part_of(mebibytes: int, device: int) -> int:
    """An amount of GPU memory as thousandths of a device: rounded down so that parts never come to more than the whole,
    and the whole device where its size is unknown or too small.
    """
    return max(1, mebibytes * WHOLE // device) if mebibytes < device else WHOLE


class Taint(Struct, frozen=True, gc=False, omit_defaults=True):
    """A node's taint that keeps pods away: NoSchedule or NoExecute."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


class Toleration(Struct, frozen=True, gc=False, omit_defaults=True):
    """What a pod puts up with; an empty key with ``Exists`` is everything, an empty effect is every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Requirement(Struct, frozen=True, gc=False, omit_defaults=True):
    """One expression over labels."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()


class NodeTerm(Struct, frozen=True, gc=False, omit_defaults=True):
    """A node selector term: all expressions hold. A term without expressions matches nothing."""

    labels: tuple[Requirement, ...] = ()
    names: tuple[Requirement, ...] = ()
    """Expressions over metadata.name."""


class PodTerm(Struct, frozen=True, gc=False, omit_defaults=True):
    """Pods that must, or must not, run in a domain with the pod of the rule."""

    key: str
    """Label of nodes: equal values are one domain."""
    selector: tuple[Requirement, ...] | None = None
    """None matches no pod, an empty one every pod."""
    namespaces: tuple[str, ...] = ()
    """Empty: the pod's own."""
    everywhere: bool = False
    """Any namespace counts."""


class Spread(Struct, frozen=True, gc=False, omit_defaults=True):
    """How unevenly matching pods may be spread over domains (only what forbids, ``DoNotSchedule``)."""

    key: str
    skew: int = 1
    selector: tuple[Requirement, ...] | None = None
    domains: int = 1
    """Fewer domains than this: the emptiest counts as empty."""
    honor_affinity: bool = True
    honor_taints: bool = False


class HostPort(Struct, frozen=True, gc=False, omit_defaults=True):
    """A port of the node itself."""

    port: int
    protocol: str = "TCP"
    ip: str = ""
    """Empty: every address."""


class Topology(Struct, frozen=True, gc=False, omit_defaults=True):
    """Labels of nodes; pods are to be together within a domain, the nodes with equal values; empty: anywhere."""

    required: str = ""
    preferred: str = ""


class PodRules(Struct, frozen=True, gc=False, omit_defaults=True):
    """The demands of a pod beyond its request."""

    labels: dict[str, str] = field(default_factory=dict)
    """Its own labels, where rules of pods may look at them."""
    node_labels: dict[str, str] = field(default_factory=dict)
    """spec.nodeSelector."""
    tolerations: tuple[Toleration, ...] = ()
    nodes: tuple[NodeTerm, ...] | None = None
    """Required node affinity: one of the terms matches. None demands nothing."""
    volumes: tuple[tuple[NodeTerm, ...], ...] = ()
    """Node affinity of its volumes: of each, one term matches."""
    claims: tuple[str, ...] = ()
    """Its persistent volume claims by name, for the stage that knows the volumes."""
    together: tuple[PodTerm, ...] = ()
    apart: tuple[PodTerm, ...] = ()
    spread: tuple[Spread, ...] = ()
    ports: tuple[HostPort, ...] = ()
    share: int = 0
    """Thousandths of a GPU device, instead of whole ones; 0 for none."""
    gpu_memory: int = 0
    """MiB of the memory of a GPU device, instead of a share in thousandths; 0 for none."""
    devices: int = 1
    """Of how many different devices it takes that."""
    topology: Topology = Topology()
    """Within which domain the pods of its set are to be."""
    unsupported: FieldProblem | None = None
    """A demand that cannot be judged here: such a pod is not placed."""


ANYWHERE = PodRules()


def products_of(rules: PodRules) -> tuple[str, ...]:
    """The GPU products that a pod may run on, sorted; empty: any."""
    if GPU_PRODUCT in rules.node_labels:
        return (rules.node_labels[GPU_PRODUCT],)
    products = dict[str, None]()
    for term in rules.nodes or ():
        named = next((need for need in term.labels if (need.key, need.operator) == (GPU_PRODUCT, "In")), None)
        if named is None:
            return ()
        products.update(dict.fromkeys(named.values))
    return tuple(sorted(products))


def amount_of(rules: PodRules) -> str:
    """The amount of GPU memory of a pod, as a key of ``GpuAmounts``."""
    return " ".join(part for part in (str(rules.gpu_memory), ",".join(products_of(rules))) if part)
