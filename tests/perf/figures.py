"""What a bench found: rounds of figures, shown as median and spread."""

import argparse
import asyncio
import statistics
import sys
import textwrap
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

Round = Mapping[str, float]
"""{figure: value}; the figure names its unit; what counts nothing in a round may be left out there"""


class Table(NamedTuple):
    """Rounds of one bench."""

    title: str
    about: str
    rounds: Sequence[Round]

    def rows(self) -> list[tuple[str, str, str]]:
        """(figure, median, spread) each."""
        found = []
        for figure in dict.fromkeys(name for each in self.rounds for name in each):
            values = [each.get(figure, 0.0) for each in self.rounds]
            found.append((figure, shown(statistics.median(values)), f"{shown(min(values))} to {shown(max(values))}"))
        return found

    def median(self, figure: str) -> float:
        return statistics.median(each[figure] for each in self.rounds)

    def lines(self) -> list[str]:
        """For a terminal."""
        return [f"  {figure:52} {middle:>12}  ({spread})" for figure, middle, spread in self.rows()]

    def markdown(self) -> str:
        rows = [f"| {figure} | {middle} | {spread} |" for figure, middle, spread in self.rows()]
        head = ["| Figure | Median | Lowest to highest |", "| --- | ---: | ---: |"]
        return "\n".join([f"## {self.title}", "", textwrap.fill(self.about, 120), "", *head, *rows, ""])


class Grid(NamedTuple):
    """Exact figures of one bench, several to a row."""

    title: str
    about: str
    columns: Sequence[str]
    """What the first column is, and the name and unit of each figure."""
    cells: Mapping[str, Sequence[float]]
    """{row: its figures}"""

    def rows(self) -> list[list[str]]:
        return [[name, *(exact(value) for value in values)] for name, values in self.cells.items()]

    def lines(self) -> list[str]:
        """For a terminal."""
        heads = [f"  {self.columns[0]:52} " + " | ".join(self.columns[1:])]
        return heads + [f"  {row[0]:52} " + " | ".join(row[1:]) for row in self.rows()]

    def markdown(self) -> str:
        lines = [self.columns, ["---", *("---:" for _ in self.columns[1:])], *self.rows()]
        table = [f"| {' | '.join(line)} |" for line in lines]
        return "\n".join([f"## {self.title}", "", textwrap.fill(self.about, 120), "", *table, ""])


def shown(value: float) -> str:
    """Three digits that count, thousands apart."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def exact(value: float) -> str:
    """Three digits after the point below ten, where there are any: 0.997 and 1 are not the same."""
    return f"{value:.3f}" if 0 < abs(value) < 10 and value != int(value) else f"{value:,.0f}"


class Progress:
    """Says on stderr what is being measured, and how long everything has taken so far."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()

    def __call__(self, text: str) -> None:
        print(f"[{self._clock() - self._began:5.0f} s] {text}", file=sys.stderr, flush=True)


def by_hand(measure: Callable[..., Awaitable[Table]], about: str | None, **defaults: int) -> None:
    """Run one bench from a shell, with an option for each of its numbers, and print what it found.

    ``measure`` takes the numbers in the order of ``defaults``, and then a Progress.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()

    async def run() -> Table:
        return await measure(*(getattr(options, name) for name in defaults), Progress())

    found = asyncio.run(run())
    print(found.about, *found.lines(), sep="\n")
