"""How a control plane is started that knows gangs by itself: the group versions and feature gates of its release."""

from __future__ import annotations

VERSION = "v1alpha2"
"""The version of ``scheduling.k8s.io`` that Kubernetes 1.36 has PodGroups in."""
GROUPS = f"/apis/scheduling.k8s.io/{VERSION}/podgroups"
_GATES = "--feature-gates=GenericWorkload=true,GangScheduling=true"
ARGUMENTS = {
    "kube-apiserver": [_GATES, f"--runtime-config=scheduling.k8s.io/{VERSION}=true"],
    "kube-controller-manager": [_GATES],
    "kube-scheduler": [_GATES],
}
"""{component: further arguments}"""
