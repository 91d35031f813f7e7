"""The layout of pods on nodes, by their requests: packed onto few nodes, or spread over many.

The word of a queue, of a node of a quota tree or of the configuration: ``pack`` or ``spread`` for everything, or a
word for pods with GPUs and a word for pods without, as ``gpu=spread,cpu=pack``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

from muster.model.problem import ProblemError, problem

PLACEMENT = "muster.dev/placement"
"""Attribute of a node of a quota tree, or annotation of a Queue, that says it."""

Strategy = Literal["pack", "spread"]
Resource = Literal["gpu", "cpu"]

STRATEGIES: dict[str, Strategy] = {arg: arg for arg in get_args(Strategy)}
RESOURCES: dict[str, Resource] = {arg: arg for arg in get_args(Resource)}


class StrategyError(ProblemError):
    """A text says no strategy."""


def strategies(text: str) -> dict[Resource, Strategy]:
    """{resource of the pods: layout}; empty for an empty text. Raises StrategyError."""
    if text in STRATEGIES:
        return dict.fromkeys(RESOURCES.values(), STRATEGIES[text])
    by_resource: dict[Resource, Strategy] = {}
    for part in text.split(",") if text else ():
        name, _, word = part.strip().partition("=")
        if name not in RESOURCES or word not in STRATEGIES or RESOURCES[name] in by_resource:
            raise StrategyError(problem("", "not_a_strategy", value=text[:64]))
        by_resource[RESOURCES[name]] = STRATEGIES[word]
    return dict(sorted(by_resource.items()))


def strategies_text(strategies: dict[Resource, Strategy]) -> str:
    """The text of these layouts."""
    return ",".join(f"{name}={strategies[name]}" for name in RESOURCES.values() if name in strategies)


def inherited(texts: Iterable[str]) -> dict[Resource, Strategy]:
    """The layouts under several texts, the lowest text last: for each resource the lowest text with a word counts."""
    by_resource: dict[Resource, Strategy] = {}
    for text in texts:
        by_resource |= strategies(text)
    return by_resource
