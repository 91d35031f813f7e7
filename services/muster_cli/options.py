"""Options that several commands take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Group, Parameter

LOG_GROUP = Group("Which log", sort_key=80)
CLUSTER_GROUP = Group("Which cluster", sort_key=85)


@Parameter(name="*")
@dataclass(frozen=True)
class Bus:
    """Which cell on which NATS."""

    url: Annotated[
        str | None,
        Parameter(
            group=LOG_GROUP,
            show_default=False,
            help="NATS address, e.g. nats://127.0.0.1:4222; several with commas. Without it: MUSTER_NATS_URL, else the "
            "newest running `muster up` of yours.",
        ),
    ] = None
    cell: Annotated[
        str | None,
        Parameter(
            group=LOG_GROUP,
            show_default=False,
            help="Cell: one log, one set of quota trees. Without it: MUSTER_CELL, else the running instance's, "
            "else main.",
        ),
    ] = None


@Parameter(name="*")
@dataclass(frozen=True)
class Cluster:
    """Which Kubernetes API server."""

    context: Annotated[
        str | None,
        Parameter(group=CLUSTER_GROUP, show_default=False, help="Context of the kubeconfig: a real cluster."),
    ] = None
    kubeconfig: Annotated[
        str | None,
        Parameter(
            group=CLUSTER_GROUP, show_default=False, help="Kubeconfig file; else KUBECONFIG, else ~/.kube/config."
        ),
    ] = None


Form = Annotated[
    Literal["table", "json", "yaml", "name"],
    Parameter(name=["--output", "-o"], help="How to print it: a table for people, the others for programs."),
]
Document = Annotated[
    Literal["text", "json", "yaml"],
    Parameter(name=["--output", "-o"], help="How to print it: text for people, the others for programs."),
]
Job = Annotated[str, Parameter(help="NAMESPACE/NAME, or NAME where that is unique; KIND/ before it if need be.")]
Reason = Annotated[str, Parameter(help="Why; kept with your name on the object, and shown.")]
