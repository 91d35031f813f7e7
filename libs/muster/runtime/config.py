"""Configuration of a service: environment variables ``MUSTER_<FIELD>``, or a YAML file named by MUSTER_CONFIG.

The environment wins over the file. Every problem is reported at once, and an unknown name is a problem.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from muster.core.stage import NEWEST, OLDEST
from muster.core.workloads.registry import KINDS, OWN
from muster.events.subjects import DEFAULT_CELL, check_cell
from muster.events.system import PlacementMode
from muster.runtime import kinds

PREFIX = "MUSTER_"
_NOT_FIELDS = frozenset({"LANG", "CONFIG"})
LOOPBACK = ("127.0.0.1", "::1", "localhost")
_SUBJECT = re.compile(r"[^\s.*>]+(\.[^\s.*>]+)*")


class ConfigError(Exception):
    """The configuration cannot be used; the message lists every problem."""


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of every service. Names in upper case with MUSTER_ in front are the environment variables."""

    nats_url: str = "nats://127.0.0.1:4222"
    """Address of NATS; several with commas."""
    nats_nkey_file: str = ""
    """File with the nkey seed this service signs in with; empty for none."""
    nats_credentials_file: str = ""
    """NATS credentials file; empty for none."""
    nats_ca_file: str = ""
    """CA certificate to verify the server with, where it speaks TLS with a private CA."""
    nats_server_name: str = ""
    """Name to expect in the certificate of the server; empty: the host of nats_url."""
    nats_inbox_prefix: str = "_INBOX"
    """Where answers come in, for accounts that may only subscribe below a prefix of their own."""
    nats_api_prefix: str = "$JS.API"
    """Prefix of the JetStream API; $JS.MUSTER.API for the users of deploy/nats/accounts.conf."""
    cell: str = DEFAULT_CELL
    """The cell this process belongs to: one log, one set of quota trees."""
    log_create: bool = False
    """Create the cell's log when it is missing, and a new generation when the stream is gone."""
    log_max_bytes: int = 8 * 2**30
    """Size limit of the log, used when it is created; at 95 % nothing new is admitted."""
    log_roll_percent: int = 80
    """How full the log may be before the keeper rolls it over to its next generation; 0: never by itself."""
    log_stage_percent: int = 20
    """How much of a generation one stage may write in ten minutes; the keeper closes it for as long then; 0: all."""
    log_archive: str = ""
    """Folder in which the keeper keeps an archive of the log; empty: none, sealed generations stay in NATS."""
    log_keep: int = 2
    """How many sealed generations stay in NATS once the archive has them; the keeper deletes older ones."""
    ruleset: int = 0
    """Rule set the quota accountant puts in force once every live replica supports it; 0: what the log says stays."""
    replicas: int = 1
    """Stream replicas, used when streams are created: 3 in production."""
    kube_context: str = ""
    """Context of the kubeconfig; empty: in-cluster, else the current context."""
    kubeconfig: str = ""
    """Kubeconfig file; empty: in-cluster, else KUBECONFIG, else ~/.kube/config."""
    act: bool = True
    """Whether the actuator writes; false observes only."""
    kinds: str = ",".join(KINDS)
    """Kinds that are queued, with commas. One whose definition the cluster does not have is skipped."""
    kinds_folder: str = ""
    """Folder with definitions of more kinds, a file each: ConfigMap muster-kinds, mounted; these kinds are queued."""
    placement: PlacementMode = "off"
    """How gangs of jobs are placed: off (quota alone decides), native (by kube-scheduler), pack or spread (by us)."""
    placement_cpu: Literal["", "pack", "spread"] = ""
    """The same for pods that take no GPU; empty: as those that do. A queue may say otherwise."""
    placement_hold_s: int = 600
    """How long places are held for the pods of an admitted gang; native: how long it keeps quota without nodes."""
    placement_grow_s: int = 0
    """How long a gang that lacks nodes keeps its quota, because nodes may be added for it; 0: not at all."""
    placement_claim_s: int = 600
    """How long a gang that fits on no nodes is tried until what becomes free is kept for it; 0: only gangs of pods."""
    placement_moves: int = 16
    """How many running jobs may be moved at once so that one fits on the nodes; 0: none is moved."""
    gpu_sharing_mode: Literal["Disabled", "NonMemoryEnforced", "HamiCore", "NvFractions"] = "NonMemoryEnforced"
    """Whether pods may share GPUs: Disabled, or NonMemoryEnforced: nothing enforces how much of one a pod uses."""
    ray_tokens: str = ""
    """Folder with tokens (NAMESPACE.NAME, or default) and certificates (the same with .ca.crt, .tls.crt, .tls.key) of
    Ray heads; empty: none asks for any.
    """
    gpu_reservation_image: str = "muster:latest"
    """Image of the pods that keep shared GPUs from the device plugin: that of the services."""
    profile: Literal["kube-queue", "lean"] = "kube-queue"
    """lean writes nothing but the decisions themselves: no QueueUnits, Queues, status or Events."""
    health_host: str = "127.0.0.1"
    """Address that /livez, /readyz, /startupz and /metrics are served on; 0.0.0.0 in a pod."""
    health_port: int = 8080
    """0: any free port; -1: no health and metrics server."""
    gateway_host: str = "127.0.0.1"
    """Address that the gateway is served on; 0.0.0.0 in a pod."""
    gateway_port: int = 8800
    """0: any free port."""
    gateway_access: Literal["review", "none"] = "review"
    """review: the API server names the namespaces a reader may see; none: every reader sees all, on loopback only."""
    gateway_url: str = ""
    """Of the command line: the gateway it reads from where no NATS is named, e.g. https://muster.example.com."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least important lines that are written to stderr."""
    log_style: Literal["auto", "json", "console"] = "auto"
    """auto: console on a terminal, json elsewhere."""
    process: str = ""
    """Name of this process in the log, where a random part is added to it; empty: the host's name."""

    def __post_init__(self) -> None:
        check_cell(self.cell)
        if not _SUBJECT.fullmatch(self.nats_inbox_prefix):
            raise ValueError(f"nats_inbox_prefix is {self.nats_inbox_prefix!r}; take a subject without wildcards")
        unknown = sorted({*self.kinds_on} - {*KINDS})
        if unknown or not self.kinds_on:
            raise ValueError(f"kinds is {self.kinds!r}; take some of {', '.join(KINDS)}, with commas")
        if self.ruleset and not OLDEST <= self.ruleset <= NEWEST:
            raise ValueError(f"ruleset is {self.ruleset}; this build knows {OLDEST} to {NEWEST}")
        self._check_log()
        if not 1 <= self.placement_hold_s <= 86_400:
            raise ValueError(f"placement_hold_s is {self.placement_hold_s}; take 1 to 86400 seconds")
        if not 0 <= self.placement_grow_s <= 86_400:
            raise ValueError(f"placement_grow_s is {self.placement_grow_s}; take 0 to 86400 seconds")
        if not 0 <= self.placement_claim_s <= 86_400:
            raise ValueError(f"placement_claim_s is {self.placement_claim_s}; take 0 to 86400 seconds")
        if not 0 <= self.placement_moves <= 64:
            raise ValueError(f"placement_moves is {self.placement_moves}; take 0 to 64 jobs")
        if self.gpu_sharing_mode in ("HamiCore", "NvFractions"):
            raise ValueError(
                f"gpu_sharing_mode is {self.gpu_sharing_mode}, which takes a library of others to enforce memory; "
                "take NonMemoryEnforced or Disabled"
            )
        self._check_gateway()
        if not -1 <= self.health_port <= 65535:
            raise ValueError(f"health_port is {self.health_port}; take a port, 0 for any free one, -1 for none")

    def _check_log(self) -> None:
        if not 0 <= self.log_roll_percent <= 94:
            raise ValueError(f"log_roll_percent is {self.log_roll_percent}; take 1 to 94, or 0 for never")
        if not 0 <= self.log_stage_percent <= 100:
            raise ValueError(f"log_stage_percent is {self.log_stage_percent}; take 1 to 100, or 0 for no limit")
        if self.log_keep < 0:
            raise ValueError(f"log_keep is {self.log_keep}; take 0 or more generations")
        if self.replicas not in (1, 3, 5):
            raise ValueError(f"replicas is {self.replicas}; JetStream takes 1, 3 or 5")

    def _check_gateway(self) -> None:
        if not 0 <= self.gateway_port <= 65535:
            raise ValueError(f"gateway_port is {self.gateway_port}; take a port, or 0 for any free one")
        if self.gateway_access == "none" and self.gateway_host not in LOOPBACK:
            raise ValueError(
                f"gateway_access is none and gateway_host is {self.gateway_host}: all would see everything there; "
                "take review, or serve on 127.0.0.1"
            )

    @property
    def kinds_on(self) -> tuple[str, ...]:
        """The kinds that are queued, in the order of the registry, after unknown ones."""
        named = dict.fromkeys(name.strip() for name in self.kinds.split(",") if name.strip())
        return (*sorted(named.keys() - KINDS.keys()), *(kind for kind in KINDS if kind in named or kind not in OWN))


def load(environ: Mapping[str, str] | None = None, **overrides: Any) -> Config:
    """The configuration of this process. ``overrides`` win over everything. Raises ConfigError."""
    return load_with_origins(environ, **overrides)[0]


def load_with_origins(environ: Mapping[str, str] | None = None, **overrides: Any) -> tuple[Config, dict[str, str]]:
    """As :func:`load`, and where each setting that is not the default comes from: a variable, a file, an option."""
    variables = os.environ if environ is None else environ
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    problems: list[str] = []
    path = variables.get(f"{PREFIX}CONFIG", "")
    if path:
        values |= _from_file(Path(path), problems)
        origins |= dict.fromkeys(values, path)
    known = set(Config.__struct_fields__)
    for name, text in sorted(variables.items()):
        field = name.removeprefix(PREFIX).lower()
        if not name.startswith(PREFIX) or name.removeprefix(PREFIX) in _NOT_FIELDS or name.startswith("MUSTER_TEST_"):
            continue
        if field in known:
            values[field] = text
            origins[field] = name
        else:
            problems.append(f"{name} is no setting; the settings are {', '.join(sorted(known))}")
    values |= overrides
    if values.get("kinds_folder"):
        kinds.load(str(values["kinds_folder"]))
    origins |= dict.fromkeys(overrides, "option")
    try:
        config = msgspec.convert(values, Config, strict=False)
    except msgspec.ValidationError as err:
        problems.append(str(err).replace(" - at `$.", " in `"))
    if problems:
        raise ConfigError("; ".join(problems))
    return config, origins


def _from_file(path: Path, problems: list[str]) -> dict[str, Any]:
    import yaml  # A process without a file starts sooner.

    try:
        settings = yaml.safe_load(path.read_text())
    except OSError as err:
        problems.append(f"cannot read {path}: {err.strerror}")
        return {}
    except yaml.YAMLError as err:
        problems.append(f"{path} is not YAML: {err}")
        return {}
    if settings is None:
        return {}
    if not isinstance(settings, dict):
        problems.append(f"{path} must hold names and values")
        return {}
    return settings
