"""Where a connection to an API server may come from: the choices a configuration or a command line offers."""

from __future__ import annotations

import os
from collections.abc import Mapping

from msgspec import Struct

ACCOUNT_DIRECTORY = "/var/run/secrets/kubernetes.io/serviceaccount"


class InCluster(Struct, frozen=True):
    """The service account of the pod we run in."""

    directory: str = ACCOUNT_DIRECTORY


class FromKubeconfig(Struct, frozen=True):
    """A context of a kubeconfig; empty: KUBECONFIG or the default file, the current context."""

    path: str = ""
    context: str = ""
    as_user: str = ""
    """Another user to act as, as ``kubectl --as``: that takes the right to impersonate."""
    as_groups: tuple[str, ...] = ()


class Explicit(Struct, frozen=True):
    """Everything said outright. Files are read by this process; ``token_file`` is read again every minute."""

    server: str
    token: str = ""
    token_file: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    verify: bool = True
    server_name: str = ""
    """Name to expect in the server's certificate, when it is not the one in ``server``."""
    namespace: str = "default"


Source = InCluster | FromKubeconfig | Explicit


def default_source(environ: Mapping[str, str] = os.environ) -> Source:
    """KUBECONFIG if set, else the pod's service account inside a cluster, else the default kubeconfig."""
    if not environ.get("KUBECONFIG") and environ.get("KUBERNETES_SERVICE_HOST"):
        return InCluster()
    return FromKubeconfig()
