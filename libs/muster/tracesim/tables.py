"""CSV tables with places: every cell that is wrong is named by file, line and column."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from muster.model.language import listed, say
from muster.tracesim.model import TraceError
from muster.tracesim.textfile import text_of


class Table:
    """Rows of a file under titles."""

    def __init__(self, path: Path, titles: Sequence[str], lines: Iterable[tuple[int, list[str]]] = ()) -> None:
        """``lines``: (line in the file, its cells)."""
        self.path = path
        self.titles = list(titles)
        self.columns: dict[str, int] = {title: index for index, title in enumerate(titles)}
        self._lines = lines

    def rows(self) -> Iterator[TableRow]:
        for line, cells in self._lines:
            yield TableRow(self, line, cells)


class CsvTable(Table):
    """A CSV file with a header. Further columns are tolerated."""

    def __init__(
        self, path: Path, needed: tuple[str, ...], aliases: dict[str, str] | None = None, *, delimiter: str = ","
    ) -> None:
        """``aliases``: {name in the file: name it is known by}. Raises TraceError when a needed column is missing."""
        text = text_of(path, "utf-8-sig")
        self._reader = csv.reader(text.splitlines(), delimiter=delimiter)
        try:
            header = [cell.strip() for cell in next(self._reader, [])]
        except csv.Error as err:
            raise TraceError(say("{path} line 1: is not CSV: {err}", path=path, err=err)) from err
        if not any(header):
            raise TraceError(
                say(
                    "{path} line 1, column 1: the header is missing; it names {needed}",
                    path=path,
                    needed=listed(needed),
                )
            )
        super().__init__(path, header)
        self.columns = {}
        for index, title in enumerate(header):
            name = (aliases or {}).get(title, title)
            if name in self.columns and name in needed:
                raise TraceError(
                    say(
                        "{path} line 1, column {index}: {title!r} names {name} a second time",
                        path=path,
                        index=index + 1,
                        title=title,
                        name=name,
                    )
                )
            self.columns.setdefault(name, index)
        missing = [name for name in needed if name not in self.columns]
        if missing:
            raise TraceError(
                say(
                    "{path} line 1: column {missing} is missing; the header is {header}",
                    path=path,
                    missing=missing[0],
                    header=",".join(header)[:200],
                )
            )

    def rows(self) -> Iterator[TableRow]:
        """Every line that is not empty."""
        try:
            for cells in self._reader:
                if any(cell.strip() for cell in cells):
                    yield TableRow(self, self._reader.line_num, cells)
        except csv.Error as err:
            raise TraceError(
                say(
                    "{path} line {line_num}: is not CSV: {err}", path=self.path, line_num=self._reader.line_num, err=err
                )
            ) from err


class TableRow:
    """One line of a table."""

    def __init__(self, table: Table, line: int, cells: list[str]) -> None:
        self.table = table
        self.line = line
        self.cells = cells

    def error(self, name: str, message: str) -> TraceError:
        """An error about one cell."""
        column = self.table.columns[name]
        return TraceError(
            say(
                "{path} line {line}, column {column} ({titles}): {message}",
                path=self.table.path,
                line=self.line,
                column=column + 1,
                titles=self.table.titles[column],
                message=message,
            )
        )

    def text(self, name: str, default: str | None = None) -> str:
        """A cell as written; ``default`` where it is absent or empty, an error without one."""
        index = self.table.columns.get(name)
        if index is not None and index < len(self.cells) and (cell := self.cells[index].strip()):
            return cell
        if default is None:
            raise self.error(name, "is empty")
        return default

    def number(self, name: str, default: str | None = None) -> float:
        """A finite number that is not negative."""
        text = self.text(name, default)
        try:
            value = float(text)
        except ValueError as err:
            raise self.error(name, f"{text[:40]!r} is not a number") from err
        if not math.isfinite(value) or value < 0:
            raise self.error(name, f"{text[:40]!r} is not a finite number of 0 or more")
        return value

    def milli(self, name: str, default: str | None = None) -> int:
        """A number in thousandths: seconds as ms, GPUs in base units."""
        return round(self.number(name, default) * 1000)

    def whole(self, name: str, default: str | None = None, *, signed: bool = False) -> int:
        """A whole number, not negative unless ``signed``."""
        text = self.text(name, default)
        digits = text[1:] if signed and text[:1] in "+-" else text
        if not digits.isascii() or not digits.isdigit() or len(digits) > 15:
            raise self.error(name, f"{text[:40]!r} is not a whole number{'' if signed else ' of 0 or more'}")
        return int(text)

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        text = self.text(name, "yes" if default else "no").lower()
        if text in ("true", "yes", "1"):
            return True
        if text in ("false", "no", "0"):
            return False
        raise self.error(name, f"{text[:40]!r} is neither true nor false")
