"""The annotations with the rules of a quota tree: from texts to rules, or the errors.

``muster.dev/reclaim: enabled``, ``muster.dev/paused: admissions,evictions``, ``muster.dev/min-run: 5m``, ...: each
annotation is checked. An unreadable annotation refuses the tree, like a broken amount.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import Struct

from muster.core.objects.kaiqueue import USAGE
from muster.core.objects.meta import PREFIX, not_decoded
from muster.model.placing import GPU, Taint, Toleration
from muster.model.problem import FieldProblem, ProblemError, Value, problem
from muster.model.problemcodes import ProblemCode
from muster.model.quota import COUNTED, DEFAULT_RULES, Flavor, Rules
from muster.model.resources import is_resource_name
from muster.model.text import clean, shorten

PAUSABLE = ("admissions", "evictions")
ORDERS = ("share", "time", "learned")
MOST_LEVELS = 8
MAX_SPAN_MS = 366 * 24 * 3_600_000
_SPAN = re.compile(r"(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,6})s)?(?:(\d{1,6})ms)?")
_ISO = re.compile(r"P(?:(\d{1,6})D)?(?:T(?=\d)(?:(\d{1,6})H)?(?:(\d{1,6})M)?(?:(\d{1,6})S)?)?")


class RuleError(ProblemError):
    """An unreadable rule."""


def _wrong(code: ProblemCode, text: str = "", **values: Value) -> RuleError:
    return RuleError(problem("", code, value=shorten(text, 40), **values))


def _one_of(text: str, choices: tuple[str, ...]) -> str:
    """The text itself, if among the choices."""
    if text not in choices:
        raise _wrong("neither" if len(choices) == 2 else "none_of", text, choices=choices)
    return text


def _choice(*choices: str, usual: str = "") -> Callable[[str], str]:
    """A reader of one of these choices; the usual choice reads as ""."""
    return lambda text: "" if _one_of(text, choices) == usual else text


def span_ms(text: str) -> int:
    """A span of time in ms, in the notation of Go and Kubernetes: ``90s``, ``10m``, ``1h30m``; ``0`` for none.

    Blanks between the parts count as nothing, and ISO 8601 is read too: ``1 h 30 m``, ``PT1H30M``.
    """
    if text == "0":
        return 0
    iso, match = _ISO.fullmatch(text), _SPAN.fullmatch(re.sub(r"(?<=[0-9]) (?=[hms])|(?<=[hms]) (?=[0-9])", "", text))
    if iso is not None and any(iso.groups()):
        days, hours, minutes, seconds = (int(part or 0) for part in iso.groups())
        total = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000
    elif text and match is not None and any(match.groups()):
        hours, minutes, seconds, ms = (int(part or 0) for part in match.groups())
        total = ((hours * 60 + minutes) * 60 + seconds) * 1000 + ms
    else:
        raise _wrong("not_a_span", text)
    if total > MAX_SPAN_MS:
        raise _wrong("span_too_long", text)
    return total


def span_or(text: str, usual: int) -> int:
    """The span of a text, in ms; ``usual`` for an empty or unreadable text."""
    try:
        return span_ms(text) if text else usual
    except RuleError:
        return usual


def paused_parts(text: str) -> tuple[str, ...]:
    """The paused actions of a comma list, sorted: ``admissions``, ``evictions``."""
    parts = sorted({part.strip() for part in text.split(",")} - {""})
    unknown = [part for part in parts if part not in PAUSABLE]
    if unknown:
        raise _wrong("not_pausable", unknown[0], choices=PAUSABLE)
    return tuple(parts)


def union(*paused: tuple[str, ...]) -> tuple[str, ...]:
    """All actions paused by any list, sorted."""
    return tuple(sorted({part for parts in paused for part in parts}))


def yes_or_no(text: str) -> bool:
    """``true`` or ``false``."""
    return _one_of(text, ("true", "false")) == "true"


def reapplied(text: str) -> str:
    """The effect of ``suspend: true`` applied again to a running job: ``refuse`` or ``keep-running``."""
    return _one_of(text, ("refuse", "keep-running"))


def _levels(text: str) -> tuple[int, ...]:
    """Rising spans of GPU time: ``1h,8h``."""
    spans = tuple(span_ms(part.strip()) for part in text.split(","))
    if len(spans) > MOST_LEVELS or spans[0] <= 0 or any(low >= high for low, high in pairwise(spans)):
        raise _wrong("not_levels", text, most=MOST_LEVELS)
    return spans


def _ages(text: str) -> bool:
    """Whether jobs age: ``0`` for never. An earlier build read the time after which a job aged."""
    if text != "0":
        raise _wrong("no_age_limit", text)
    return False


def _positive_span(text: str) -> int:
    span = span_ms(text)
    if not span:
        raise _wrong("span_zero")
    return span


def _thousandths(text: str) -> int:
    """A number from 0 to 100 with up to three decimals, in thousandths."""
    match = re.fullmatch(r"(\d{1,3})(?:\.(\d{1,3}))?", text)
    number = int(match[1]) * 1000 + int((match[2] or "").ljust(3, "0")) if match is not None else -1
    if not 0 <= number <= 100_000:
        raise _wrong("not_a_weight", text)
    return number


MOST_FLAVORS = 16
_FLAVOR = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")


class _RawFlavor(Struct, frozen=True):
    """A flavor as written: with the names of the fields of a ResourceFlavor's spec."""

    name: str
    nodeLabels: dict[str, str] = {}
    nodeTaints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    resources: tuple[str, ...] = (GPU,)


def read_flavors(text: str) -> tuple[Flavor, ...]:
    """The flavors of a tree, a list in JSON, in order. Flavors with a resource in common have all resources in common.

    Raises RuleError.
    """
    try:
        raw = msgspec.json.decode(text or "[]", type=tuple[_RawFlavor, ...])
    except msgspec.DecodeError as err:
        raise RuleError(problem("", "flavors_unreadable", not_decoded(str(err)))) from err
    group_of: dict[str, tuple[str, ...]] = {}
    for index, flavor in enumerate(raw):
        if not _FLAVOR.fullmatch(flavor.name) or flavor.name in [other.name for other in raw[:index]]:
            raise _wrong("not_a_flavor", flavor.name)
        if len(raw) > MOST_FLAVORS or not flavor.resources:
            raise _wrong("not_a_flavor", flavor.name)
        group = tuple(sorted(flavor.resources))
        for name in group:
            if not is_resource_name(name) or name in COUNTED or group_of.setdefault(name, group) != group:
                raise _wrong("flavors_overlap", name)
    return tuple(
        Flavor(one.name, one.nodeLabels, _hard(one.nodeTaints), one.tolerations, tuple(sorted(one.resources)))
        for one in raw
    )


def flavors_written(flavors: Iterable[Flavor]) -> str:
    """The annotation with these flavors, as ``read_flavors`` reads it; empty without any."""
    raw = [_RawFlavor(one.name, one.labels, one.taints, one.tolerations, one.resources) for one in flavors]
    return msgspec.json.encode(raw).decode() if raw else ""


def _hard(taints: tuple[Taint, ...]) -> tuple[Taint, ...]:
    """The taints that keep pods away; others are preferences."""
    return tuple(taint for taint in taints if taint.effect in ("NoSchedule", "NoExecute"))


def read_usage(texts: Mapping[str, str]) -> tuple[dict[str, int], FieldProblem | None]:
    """({field of Rules: value}, the error of the first unreadable annotation)."""
    values: dict[str, int] = {}
    for name, (attribute, read) in _USAGE.items():
        if name in texts:
            try:
                values[attribute] = read(texts[name])
            except RuleError as err:
                return {}, annotation(name, err)
    return values, None


def annotation(name: str, err: RuleError) -> FieldProblem:
    """The error of the annotation ``muster.dev/name``."""
    return problem("", "annotation", err.problem, key=f"{PREFIX}/{name}")


def _text(text: str) -> str:
    return clean(shorten(text, 200))


_READERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "reclaim": ("reclaim", _choice("enabled", "disabled")),
    "paused": ("paused", paused_parts),
    "paused-by": ("paused_by", _text),
    "paused-reason": ("paused_reason", _text),
    "min-run": ("min_run_ms", span_ms),
    "reclaim-grace": ("reclaim_grace_ms", span_ms),
    "protect-evicted": ("protect_ms", span_ms),
    "preempt-lower-priority": ("preempt_lower_priority", yes_or_no),
    "age-limit": ("ages", _ages),
    "claim": ("claim_ms", span_ms),
    "running-timeout": ("running_timeout_ms", span_ms),
    "start-timeout": ("start_timeout_ms", span_ms),
    "overuse-timeout": ("overuse_ms", span_ms),
    "backoff": ("backoff_ms", span_ms),
    "runtime": ("runtime", _choice("weight", "max", usual="max")),
    "order": ("order", _choice(*ORDERS)),
    "least-attained": ("least_attained_ms", _levels),
    "capacity": ("capacity", _choice("written", "nodes", usual="written")),
    "unbound-queue": ("unbound_queue", _text),
    "charge-pods": ("charge_pods", _choice("none", "ours", "all", usual="ours")),
}
_USAGE: dict[str, tuple[str, Callable[[str], Any]]] = dict(
    zip(
        USAGE,
        (
            ("usage_window_ms", _positive_span),
            ("usage_half_life_ms", _positive_span),
            ("usage_weight", _thousandths),
        ),
        strict=True,
    )
)
USAGE_WINDOW_MS = 7 * 24 * 3_600_000
"""How far back usage counts where only the half-life is set."""
_CHECKED: dict[str, Callable[[str], Any]] = {
    "reapplied": reapplied,
    "flavors": read_flavors,
}
"""Annotations that are no field of Rules: deploy/policies read ``reapplied``; the flavors are a part of the tree."""
RETIRED: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "borrow-freely": {},
    "preset": {"fair": ("order", "share"), "checkpointed": ("least-attained", "4h,32h")},
}
"""Annotations of an earlier build: {annotation: {its value: (another annotation, the value of that)}}. A tree
with one is refused, and so does not decide otherwise in silence.
"""
KNOWN = (*_READERS, *_CHECKED)
"""The known annotations, without prefix."""


def read_rules(texts: Mapping[str, str]) -> tuple[Rules, list[FieldProblem]]:
    """The rules, and the error of each unreadable annotation; unknown names are ignored."""
    values: dict[str, Any] = {}
    wrong: list[FieldProblem] = []
    for name in sorted(texts):
        row = _READERS.get(name)
        try:
            if name in RETIRED:
                key, value = RETIRED[name].get(texts[name], ("", ""))
                raise _wrong("replaced", value, key=f"{PREFIX}/{key}") if key else _wrong("retired")
            if row is not None:
                values[row[0]] = row[1](texts[name])
            elif name in _CHECKED:
                _CHECKED[name](texts[name])
        except RuleError as err:
            wrong.append(annotation(name, err))
    # Values equal to the default are left out: an encoding omits a default by identity, and a decoded text is new.
    other = {name: value for name, value in values.items() if value != getattr(DEFAULT_RULES, name)}
    return (Rules(**other) if other else DEFAULT_RULES), wrong
