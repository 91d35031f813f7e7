"""A progress bar on stderr, on terminals only."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

STRIDE = 200
"""The bar is drawn again after at least this many more."""


@contextlib.contextmanager
def counting(verb: str, total: int, noun: str) -> Iterator[Callable[[int], None] | None]:
    """A function to call with how many are done; None where it would not be visible."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        TextColumn(verb),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(noun),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task(verb, total=total)
        shown = 0

        def done(count: int) -> None:
            nonlocal shown
            if count - shown >= STRIDE or count >= total:
                shown = count
                bar.update(task, completed=count)

        yield done
