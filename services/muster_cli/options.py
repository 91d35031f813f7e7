"""Options that several commands take."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Group, Parameter
from msgspec.structs import replace

from muster.model.language import marked, say
from muster_cli.exits import USAGE, CliError

if TYPE_CHECKING:
    from muster.runtime.config import Config

LOG_GROUP = Group(marked("Which log"), sort_key=80)
GATEWAY_GROUP = Group(marked("Through a gateway"), sort_key=82)
CLUSTER_GROUP = Group(marked("Which cluster"), sort_key=85)


Url = Annotated[
    str | None,
    Parameter(
        name=["--url", "--nats"],
        group=LOG_GROUP,
        show_default=False,
        help="NATS address, e.g. nats://127.0.0.1:4222; several with commas. Without it: MUSTER_NATS_URL, else the "
        "newest running `muster up` of yours.",
    ),
]
Cell = Annotated[
    str | None,
    Parameter(
        group=LOG_GROUP,
        show_default=False,
        help="Cell: one log, one set of quota trees. Without it: MUSTER_CELL, else the running instance's, else main.",
    ),
]


@Parameter(name="*")
@dataclass(frozen=True)
class Bus:
    """The cell, and the NATS."""

    url: Url = None
    cell: Cell = None


@Parameter(name="*")
@dataclass(frozen=True)
class Source:
    """Which log, recorded or running."""

    log: Annotated[
        Path | None,
        Parameter(
            group=LOG_GROUP,
            show_default=False,
            help="Read an exported log (a file, plain or .gz, or a folder of segments) instead of a running one.",
        ),
    ] = None
    data: Annotated[
        Path | None,
        Parameter(
            group=LOG_GROUP,
            show_default=False,
            help="Data directory of a `muster up --data DIR`, running or not.",
        ),
    ] = None
    url: Url = None
    cell: Cell = None

    @property
    def bus(self) -> Bus:
        return Bus(self.url, self.cell)


@Parameter(name="*")
@dataclass(frozen=True)
class Room:
    """How much a new log may hold, and on how many servers."""

    replicas: Annotated[
        int | None,
        Parameter(show_default=False, help="Servers each stream is kept on: 3 in production. Without it: 1."),
    ] = None
    max_bytes: Annotated[
        int | None,
        Parameter(show_default=False, help="Size limit of the log in bytes. Without it: MUSTER_LOG_MAX_BYTES."),
    ] = None

    def applied(self, config: Config) -> Config:
        """The configuration with the given options. Raises CliError for values that JetStream refuses."""
        if self.replicas not in (None, 1, 3, 5):
            raise CliError(say("--replicas is {replicas}; JetStream takes 1, 3 or 5", replicas=self.replicas), USAGE)
        return replace(
            config,
            replicas=config.replicas if self.replicas is None else self.replicas,
            log_max_bytes=config.log_max_bytes if self.max_bytes is None else self.max_bytes,
        )


@Parameter(name="*")
@dataclass(frozen=True)
class ClusterOption:
    """Which Kubernetes API server."""

    context: Annotated[
        str | None,
        Parameter(
            group=CLUSTER_GROUP,
            show_default=False,
            help="Context of the kubeconfig. Without it: the cluster of the running `muster up` that has the log.",
        ),
    ] = None
    kubeconfig: Annotated[
        str | None,
        Parameter(
            group=CLUSTER_GROUP, show_default=False, help="Kubeconfig file; else KUBECONFIG, else ~/.kube/config."
        ),
    ] = None


@Parameter(name="*")
@dataclass(frozen=True)
class GatewayOption:
    """A gateway instead of the log."""

    gateway: Annotated[
        str | None,
        Parameter(
            group=GATEWAY_GROUP,
            show_default=False,
            help="Ask the gateway at this URL, with the token of your kubeconfig: it shows the namespaces whose pods "
            "you may list. Without it: MUSTER_GATEWAY_URL, where no log is named.",
        ),
    ] = None
    context: Annotated[
        str | None, Parameter(group=GATEWAY_GROUP, show_default=False, help="Context of the kubeconfig.")
    ] = None
    kubeconfig: Annotated[
        str | None,
        Parameter(
            group=GATEWAY_GROUP, show_default=False, help="Kubeconfig file; else KUBECONFIG, else ~/.kube/config."
        ),
    ] = None


Form = Annotated[
    Literal["table", "wide", "json", "yaml", "name"],
    Parameter(name=["--output", "-o"], help="How to print it: a table, a wide one, or for programs."),
]
Document = Annotated[
    Literal["text", "json", "yaml"],
    Parameter(name=["--output", "-o"], help="How to print it: text for people, the others for programs."),
]
At = Annotated[
    str,
    Parameter(
        show_default=False,
        allow_leading_hyphen=True,
        help="As it was at this sequence or time, or so long ago (-5m), instead of now.",
    ),
]
Job = Annotated[str, Parameter(help="NAMESPACE/NAME, or NAME where that is unique; KIND/ before it if need be.")]
Reason = Annotated[str, Parameter(help="Why; kept with your name on the object, and shown.")]


def pair(option: str, text: str, example: str) -> tuple[str, str]:
    """What ``NAME=VALUE`` says. Raises CliError."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise CliError(
            say("{option} {words}: write it like {example}", option=option, words=text, example=example), USAGE
        )
    return name, value
