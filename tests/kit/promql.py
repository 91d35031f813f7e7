"""A small judge of PromQL: what our rules and dashboards use of it, over samples that a test recorded.

It shares no code with what makes the metrics; a query that it cannot read is an error. `make promtool` has
Prometheus' own tool read the rules.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

Labels = tuple[tuple[str, str], ...]
Vector = dict[Labels, float]

TOKEN = re.compile(
    r"\s*(?:(?P<span>\d+[smhd])|(?P<number>\d+(?:\.\d+)?)|(?P<name>[a-zA-Z_:][\w:]*)"
    r'|(?P<text>"[^"]*")|(?P<op>=~|!~|!=|==|>=|<=|[-+*/(){}\[\],=<>]))'
)
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
SUMS: dict[str, Callable[[Sequence[float]], float]] = {"sum": sum, "max": max, "min": min, "count": len}
OVER = ("increase", "rate", "max_over_time", "min_over_time", "avg_over_time")
ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": lambda a, b: a / b if b else 0.0,
}  # fmt: skip
COMPARED: dict[str, Callable[[float, float], bool]] = {
    ">": lambda a, b: a > b, "<": lambda a, b: a < b, ">=": lambda a, b: a >= b, "<=": lambda a, b: a <= b,
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b,
}  # fmt: skip


class Sample(NamedTuple):
    at: float
    values: dict[str, Vector]


class Recorded:
    """What was scraped, oldest first."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []

    def scrape(self, page: str, at: float) -> None:
        self.take(text_string_to_metric_families(page), at)

    def take(self, families: Iterable[Metric], at: float) -> None:
        values: dict[str, Vector] = {}
        for family in families:
            for sample in family.samples:
                values.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
        self.samples.append(Sample(at, values))

    def ask(self, query: str, at: float | None = None) -> Vector:
        """The instant vector of a query; ValueError where it is none."""
        parser = Parser(query, self.samples, self.samples[-1].at if at is None else at)
        found = parser.whole()
        return {(): found} if isinstance(found, float) else found

    def names(self) -> set[str]:
        return {name for sample in self.samples for name in sample.values}

    def fires(self, query: str, seconds: float) -> bool:
        """Whether an alert fires at the last sample: its query had an answer, for each label set, for so long."""
        end = self.samples[-1].at
        looked = [sample.at for sample in self.samples if sample.at >= end - seconds]
        if not looked or (seconds and looked[0] > end - seconds * 0.9):
            return False
        kept = set(self.ask(query, looked[-1]))
        for at in looked:
            kept &= set(self.ask(query, at))
        return bool(kept)


class Parser:
    def __init__(self, query: str, samples: list[Sample], at: float) -> None:
        self.tokens: list[tuple[str, str]] = []
        query, place = query.strip(), 0
        while place < len(query):
            found = TOKEN.match(query, place)
            if found is None:
                raise ValueError(f"not PromQL at {query[place : place + 20]!r}")
            self.tokens.append((str(found.lastgroup), found[str(found.lastgroup)]))
            place = found.end()
        self.samples = [sample for sample in samples if sample.at <= at]
        self.at, self.names = at, list[str]()

    def whole(self) -> Vector | float:
        found = self.sets()
        if self.tokens:
            raise ValueError(f"left over: {self.tokens}")
        return found

    def peek(self, *values: str) -> bool:
        return bool(self.tokens) and self.tokens[0][1] in values

    def take(self, *values: str) -> str:
        if not self.tokens or (values and self.tokens[0][1] not in values):
            raise ValueError(f"{' or '.join(values)} wanted, not {self.tokens[:1]}")
        return self.tokens.pop(0)[1]

    def sets(self) -> Vector | float:
        left = self.compared()
        while self.peek("and", "or", "unless"):
            op, match = self.take(), self.matching()
            right = self.compared()
            assert isinstance(left, dict)
            assert isinstance(right, dict)
            keys = {match(key) for key in right}
            if op == "or":
                left = {**right, **left}
            else:
                left = {key: value for key, value in left.items() if (match(key) in keys) == (op == "and")}
        return left

    def matching(self) -> Callable[[Labels], Labels]:
        if not self.peek("on", "ignoring"):
            return lambda key: key
        on, names = self.take() == "on", self.labels()
        return lambda key: tuple(each for each in key if (each[0] in names) == on)

    def labels(self) -> list[str]:
        found = []
        self.take("(")
        while not self.peek(")"):
            found.append(self.take())
            if self.peek(","):
                self.take(",")
        self.take(")")
        return found

    def compared(self) -> Vector | float:
        left = self.added()
        while self.peek(*COMPARED):
            op, match = COMPARED[self.take()], self.matching()
            right = self.added()
            left = _joined(left, right, match, lambda a, b, op=op: a if op(a, b) else None)  # type: ignore[misc]
        return left

    def added(self) -> Vector | float:
        left = self.times()
        while self.peek("+", "-"):
            op, match = ARITHMETIC[self.take()], self.matching()
            left = _joined(left, self.times(), match, op)
        return left

    def times(self) -> Vector | float:
        left = self.one()
        while self.peek("*", "/"):
            op, match = ARITHMETIC[self.take()], self.matching()
            left = _joined(left, self.one(), match, op)
        return left

    def one(self) -> Vector | float:
        if self.peek("("):
            self.take("(")
            inner = self.sets()
            self.take(")")
            return inner
        kind, word = self.tokens.pop(0)
        if kind == "number":
            return float(word)
        if kind != "name":
            raise ValueError(f"a metric wanted, not {word}")
        if word in SUMS:
            return self.summed(SUMS[word])
        if word == "histogram_quantile":
            return self.quantile()
        if word in OVER:
            self.take("(")
            found = self.ranged(word)
            self.take(")")
            return found
        return self.selected(word)

    def summed(self, how: Callable[[Sequence[float]], float]) -> Vector:
        by = self.labels() if self.peek("by") and self.take("by") else None
        self.take("(")
        inner = self.sets()
        self.take(")")
        if by is None:
            by = self.labels() if self.peek("by") and self.take("by") else []
        assert isinstance(inner, dict)
        groups: dict[Labels, list[float]] = {}
        for key, value in inner.items():
            groups.setdefault(tuple(each for each in key if each[0] in by), []).append(value)
        return {key: float(how(values)) for key, values in groups.items()}

    def quantile(self) -> Vector:
        self.take("(")
        rank = float(self.take())
        self.take(",")
        inner = self.sets()
        self.take(")")
        assert isinstance(inner, dict)
        groups: dict[Labels, list[tuple[float, float]]] = {}
        for key, value in inner.items():
            bound = float(dict(key)["le"])
            groups.setdefault(tuple(each for each in key if each[0] != "le"), []).append((bound, value))
        found = {}
        for key, bounds in groups.items():
            bounds.sort()
            if bounds[-1][1]:
                found[key] = next(bound for bound, count in bounds if count >= rank * bounds[-1][1])
        return found

    def matchers(self) -> Callable[[Labels], bool]:
        wanted: list[tuple[str, str, str]] = []
        if self.peek("{"):
            self.take("{")
            while not self.peek("}"):
                wanted.append((self.take(), self.take("=", "!=", "=~", "!~"), self.take().strip('"')))
                if self.peek(","):
                    self.take(",")
            self.take("}")

        def fits(key: Labels) -> bool:
            known = dict(key)
            return all(
                (bool(re.fullmatch(text, known.get(name, ""))) if "~" in op else known.get(name, "") == text)
                == (op[0] != "!")
                for name, op, text in wanted
            )

        return fits

    def selected(self, name: str) -> Vector:
        self.names.append(name)
        fits = self.matchers()
        last = self.samples[-1].values.get(name, {}) if self.samples else {}
        return {key: value for key, value in last.items() if fits(key)}

    def ranged(self, how: str) -> Vector:
        name = self.take()
        self.names.append(name)
        fits = self.matchers()
        self.take("[")
        text = self.take()
        self.take("]")
        seconds = int(text[:-1]) * UNITS[text[-1]]
        series: dict[Labels, list[float]] = {}
        for sample in self.samples:
            if sample.at >= self.at - seconds:
                for key, value in sample.values.get(name, {}).items():
                    if fits(key):
                        series.setdefault(key, []).append(value)
        return {key: _over(how, values, seconds) for key, values in series.items()}


def _over(how: str, values: list[float], seconds: int) -> float:
    if how in ("increase", "rate"):
        steps = pairwise(values)
        more = sum(after - before if after >= before else after for before, after in steps)
        return more / (seconds if how == "rate" else 1)
    return {"max": max(values), "min": min(values), "avg": sum(values) / len(values)}[how[:3]]


def _joined(
    left: Vector | float, right: Vector | float, match: Callable[[Labels], Labels],
    op: Callable[[float, float], float | None],
) -> Vector | float:  # fmt: skip
    if isinstance(left, float) and isinstance(right, float):
        found = op(left, right)
        return {} if found is None else found
    if isinstance(right, float):
        assert isinstance(left, dict)
        made = {key: op(value, right) for key, value in left.items()}
    elif isinstance(left, float):
        made = {key: op(left, value) for key, value in right.items()}
    else:
        known = {match(key): value for key, value in right.items()}
        made = {key: op(value, known[match(key)]) for key, value in left.items() if match(key) in known}
    return {key: value for key, value in made.items() if value is not None}
