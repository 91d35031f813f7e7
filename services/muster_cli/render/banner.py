"""The banner of ``muster up``: the parts and their addresses, where to look, what to try; and the last line."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from rich.text import Text

from muster.model.language import listed, say
from muster.model.resources import Vector, format_vector
from muster.model.text import counted, span
from muster_cli.console import DIM, LINK, STRONG, columns, styled


class BannerFacts(Struct, frozen=True, kw_only=True):
    """What a banner says."""

    version: str
    nats_version: str
    url: str
    home: str
    temporary: bool
    continued: int = 0
    """Commits the log already had; 0: it is new."""
    nodes: int = 0
    capacity: Vector = {}
    server: str = ""
    """The real API server, when there is one."""
    origin: str = ""
    """The context and the file of the connection."""
    acting: bool = True
    services: Sequence[str] = ()
    metrics_url: str = ""
    dashboard_url: str = ""
    kubeconfig: str = ""
    speed: float = 1.0
    cell: str = "main"
    ready_ms: int = 0
    command: str = "muster"
    """How a shell finds this command: `muster` where it is on the PATH."""
    nats_command: bool = True
    """Whether the command `nats` is there."""
    kind: str = "rayjob"
    """kubectl's name for the jobs in the banner."""
    sample: str = "rayjob.yaml"
    """The manifest of such a job."""


def banner(facts: BannerFacts) -> list[Text]:
    """The banner."""
    local = not facts.server
    text = say("local playground: nothing here touches a Kubernetes cluster")
    if not local:
        text = (
            say("acts on a real cluster: jobs are admitted there")
            if facts.acting
            else say("only observes: nothing is written")
        )
    kept = say("kept in {home}", home=facts.home) if not facts.temporary else say("temporary; keep it with --data DIR")
    rows = [
        (
            "Bus",
            say(
                "nats-server {nats_version} at {url} (JetStream, {kept})",
                nats_version=facts.nats_version,
                url=facts.url,
                kept=kept,
            ),
        ),
        ("Cluster", _cluster(facts)),
        (
            "Services",
            say(
                "{services}; all in this process, up in {ready_ms}",
                services=listed(facts.services),
                ready_ms=span(facts.ready_ms),
            ),
        ),
    ]
    if facts.continued:
        rows.append(("Log", say("goes on after {continued}", continued=counted(facts.continued, "commit"))))
    if facts.speed != 1:
        rows.append(
            (
                "Time",
                say("runs {speed} times as fast here; times below are those of the cluster", speed=f"{facts.speed:g}"),
            )
        )
    if facts.kubeconfig:
        rows.append(("kubectl", f"kubectl --kubeconfig {facts.kubeconfig} get {facts.kind} -A"))
    if facts.metrics_url:
        rows.append(("Metrics", facts.metrics_url))
    rows.append((say("Log files"), f"{facts.home}/muster.log"))
    first = [styled((say("Dashboard"), STRONG), "  ", (facts.dashboard_url, LINK))] if facts.dashboard_url else []
    return [
        *first,
        styled((say("Muster {version}", version=facts.version), STRONG), f"   {text}"),
        *columns([(styled((name, DIM)), value) for name, value in rows], indent=2),
    ]


def _cluster(facts: BannerFacts) -> str:
    if facts.server:
        return say("{server} ({origin})", server=facts.server, origin=facts.origin)
    again = say(", as it was left") if facts.continued else ""
    return say(
        "simulated{again}: {nodes}, {capacity}",
        again=again,
        nodes=counted(facts.nodes, "node"),
        capacity=format_vector(facts.capacity),
    )


def tries(facts: BannerFacts) -> list[Text]:
    """What to try in another terminal."""
    local = not facts.server
    muster = facts.command
    commands = [
        (f"{muster} queue tree", say("how much of its quota each queue uses")),
        (f"{muster} queue ls", say("how many wait where, and why the first one does")),
        (f"{muster} why NAMESPACE/JOB", say("why a job waits, or what became of it")),
    ]
    if local:
        commands.append(
            (f"{muster} submit {facts.home}/{facts.sample}", say("one more job (edit the file first, if you like)"))
        )
    server = "" if facts.url.endswith(":4222") else f"-s {facts.url} "
    needs = "" if facts.nats_command else say(" (needs the command of NATS, github.com/nats-io/natscli)")
    commands += [
        (f"{muster} tail", say("every event of the log")),
        (f"nats sub {server}'muster.pub.v1.>'", say("the public events{needs}", needs=needs)),
        (f"{muster} export --out log.jsonl.gz", say("then: {muster} replay --log log.jsonl.gz", muster=muster)),
    ]
    rows = [(styled((command, LINK)), styled((why, DIM))) for command, why in commands]
    return [Text(say("Try in another terminal:")), *columns(rows, indent=2), Text(say("Ctrl-C stops everything."))]
