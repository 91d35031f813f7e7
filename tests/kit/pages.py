"""The pages newcomers read, and what of them can be run."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kit.compose import REPOSITORY

PAGES = sorted(
    [
        REPOSITORY / "README.md",
        REPOSITORY / "CONTRIBUTING.md",
        *(REPOSITORY / "docs").rglob("*.md"),
        *(REPOSITORY / "services").glob("*/README.md"),
        *(REPOSITORY / "proto-schemas").glob("*.md"),
    ]
)
_BLOCK = re.compile(r"^```(?P<info>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


class Block(NamedTuple):
    """One fenced block. ``info``: `sh` is run beside a demo, `sh cluster` needs a real cluster and is read only.

    `json FILE` and other kinds with a file name are files that the page's commands read.
    `sh nats` is for programs of others: test_subscribers runs the examples, the subjects are asked of the demo.
    """

    page: Path
    line: int
    info: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(REPOSITORY)}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for found in _BLOCK.finditer(text):
        yield Block(page, text.count("\n", 0, found.start()) + 1, found["info"].strip(), found["text"])


def shell(info: str) -> list[Block]:
    """Every block of one info string, of every page."""
    return [block for page in PAGES for block in blocks(page) if block.info == info]


def given(page: Path) -> dict[str, str]:
    """{name: text} of the files a page shows."""
    named = [(block.info.split(), block.text) for block in blocks(page)]
    return {words[1]: text for words, text in named if len(words) == 2 and "." in words[1]}


def lines(block: Block) -> Iterator[str]:
    """The commands of a block, without comments."""
    for line in block.text.splitlines():
        command = re.sub(r"(^|\s+)#.*$", "", line).strip()
        if command:
            yield command


def links(page: Path) -> Iterator[str]:
    """Links to files, as written."""
    for target in _LINK.findall(_BLOCK.sub("", page.read_text())):
        if "://" not in target and not target.startswith("#"):
            yield target.partition("#")[0]


def plain(text: str) -> str:
    """A text in one line, without what differs from run to run."""
    return re.sub(r"\d+(\.\d+)? m?s\b", "TIME", " ".join(text.split()))


def has_part(page: Path, mark: str, part: str) -> bool:
    """Whether a page has this text between its two comments ``mark``; MUSTER_TEST_REWRITE=1 writes it there."""
    text = page.read_text()
    before, _, rest = text.partition(f"<!-- {mark} -->\n")
    _, _, after = rest.partition(f"<!-- end of {mark} -->")
    written = f"{before}<!-- {mark} -->\n{part}<!-- end of {mark} -->{after}"
    if os.environ.get("MUSTER_TEST_REWRITE"):
        page.write_text(written)
    return text == written
