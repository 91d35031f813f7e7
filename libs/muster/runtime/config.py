"""Configuration of a service: environment variables ``MUSTER_<FIELD>``, or a YAML file named by MUSTER_CONFIG.

The environment wins over the file. Every problem is reported at once, and an unknown name is a problem.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

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
    log_max_bytes: Annotated[int, Meta(ge=1)] = 8 * 2**30
    """Size limit of the log, used when it is created; at 95 % nothing new is admitted."""
    log_roll_percent: Annotated[int, Meta(ge=0, le=94)] = 80
    """How full the log may be before the keeper rolls it over to its next generation; 0: never by itself."""
    log_stage_percent: Annotated[int, Meta(ge=0, le=100)] = 20
    """How much of a generation one stage may write in ten minutes; the keeper closes it for as long then; 0: all."""
    log_archive: str = ""
    """Folder in which the keeper keeps an archive of the log; empty: none, sealed generations stay in NATS."""
    log_keep: Annotated[int, Meta(ge=0)] = 2
    """How many sealed generations stay in NATS once the archive has them; the keeper deletes older ones."""
    ruleset: int = 0
    """Rule set the quota accountant puts in force once every live replica supports it; 0: what the log says stays."""
    replicas: Literal[1, 3, 5] = 1
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
    placement_hold_s: Annotated[int, Meta(ge=1, le=86_400)] = 600
    """How long places are held for the pods of an admitted gang; native: how long it keeps quota without nodes."""
    placement_grow_s: Annotated[int, Meta(ge=0, le=86_400)] = 0
    """How long a gang that lacks nodes keeps its quota, because nodes may be added for it; 0: not at all."""
    placement_moves: Annotated[int, Meta(ge=0, le=64)] = 16
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
    health_port: Annotated[int, Meta(ge=-1, le=65_535)] = 8080
    """0: any free port; -1: no health and metrics server."""
    gateway_host: str = "127.0.0.1"
    """Address that the gateway is served on; 0.0.0.0 in a pod."""
    gateway_port: Annotated[int, Meta(ge=0, le=65_535)] = 8800
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
        if self.gpu_sharing_mode in ("HamiCore", "NvFractions"):
            raise ValueError(
                f"gpu_sharing_mode is {self.gpu_sharing_mode}, which takes a library of others to enforce memory; "
                "take NonMemoryEnforced or Disabled"
            )
        self._check_gateway()

    def _check_gateway(self) -> None:
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
    for name, text in sorted(variables.items()):
        if not name.startswith(PREFIX) or name.removeprefix(PREFIX) in _NOT_FIELDS or name.startswith("MUSTER_TEST_"):
            continue
        field = name.removeprefix(PREFIX).lower()
        values[field], origins[field] = text, name
    values |= overrides
    origins |= dict.fromkeys(overrides, "option")
    types = {item.name: item.type for item in msgspec.structs.fields(Config)}
    for field, value in values.items():
        shown = origins[field] if origins[field].startswith(PREFIX) else f"{field} of {origins[field]}"
        if field not in types:
            problems.append(f"{shown} is no setting{_nearest(field, types, shown)}")
        elif wanted := _unfit(value, types[field]):
            problems.append(f"{shown} is {value!r}; take {wanted}")
    if problems:
        raise ConfigError("; ".join(problems))
    if values.get("kinds_folder"):
        kinds.load(str(values["kinds_folder"]))
    try:
        return msgspec.convert(values, Config, strict=False), origins
    except msgspec.ValidationError as err:  # Of __post_init__: of all settings together.
        raise ConfigError(str(err)) from None


def _nearest(field: str, types: Mapping[str, object], shown: str) -> str:
    """What an unknown name was meant to be, else all names."""
    from difflib import get_close_matches

    close = get_close_matches(field, types, n=1, cutoff=0.75)
    if not close:
        return f"; the settings are {', '.join(sorted(types))}"
    return f"; did you mean {PREFIX + close[0].upper() if shown.startswith(PREFIX) else close[0]}?"


def _unfit(value: Any, of: Any) -> str:
    """What a setting of this type takes, where a value is not of the type."""
    try:
        msgspec.convert(value, of, strict=False)
    except msgspec.ValidationError:
        return _taken(of)
    return ""


def _taken(of: Any) -> str:
    if get_origin(of) is Literal:
        *others, last = (str(choice) or "an empty text" for choice in get_args(of))
        return f"{', '.join(others)} or {last}"
    if of in (bool, str):
        return "true or false" if of is bool else "a text"
    least, most = bounds(of)
    if most is not None:
        return f"a whole number from {least} to {most}"
    return "a whole number" if least is None else f"a whole number, {least} or more"


def bounds(of: Any) -> tuple[int | None, int | None]:
    """The least and the most of the type of a setting; None: no bound."""
    meta = next(iter(getattr(of, "__metadata__", ())), Meta())
    return meta.ge, meta.le  # type: ignore[return-value]  # Of an int.


def _from_file(path: Path, problems: list[str]) -> dict[str, Any]:
    import yaml  # A process without a file starts sooner.

    try:
        settings = yaml.safe_load(path.read_text())
    except OSError as err:
        problems.append(f"cannot read {path}, which {PREFIX}CONFIG names: {err.strerror}")
        return {}
    except yaml.YAMLError as err:
        problems.append(f"{path}, which {PREFIX}CONFIG names, is not YAML: {' '.join(str(err).split())}")
        return {}
    if settings is None:
        return {}
    if not isinstance(settings, dict):
        problems.append(f"{path}, which {PREFIX}CONFIG names, must hold names and values")
        return {}
    return settings
