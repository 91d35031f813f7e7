"""Muster: which job runs next on a shared Kubernetes cluster, with which resources, and why.

Layers, lowest first: model (values) < events (the vocabulary) < core (pure deciders) < ports
(what the outside must offer) < bus | kube | telemetry | sim (adapters) < runtime (runners).
"""

__version__ = "0.1.0"
