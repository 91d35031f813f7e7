"""What commands print in the walk of the docs, without what differs from run to run, and the page that shows it."""

import os
import re
from pathlib import Path

REWRITE = "MUSTER_TEST_REWRITE"
_DIFFERS = (
    (re.compile(r"=+ (List|Autoscaler status): \S+ \S+ =+"), r"======== \1: TIME ========"),
    (re.compile(r"^-{5,}$", re.MULTILINE), "-----"),
    (re.compile(r"\b[0-9a-f]{16,}\b"), "ID"),
    (re.compile(r"\b\d{8}\b"), "JOB"),
    (re.compile(r"(-head|-worker)-[a-z0-9]{5}\b"), r"\1-xxxxx"),
    (re.compile(r"\b[\d.]+[KMGT]iB\b"), "SIZE"),
    (re.compile(r"\d+:\d+:\d+"), "TIME"),
)


def plain(text: str) -> str:
    """The text as the page shows it: blanks in one, rows of tables sorted and without their numbers."""
    for pattern, instead in _DIFFERS:
        text = pattern.sub(instead, text)
    lines = [re.sub(r"(?<=\S) {2,}", " ", line.rstrip()) for line in text.strip().splitlines()]
    lines = [re.sub(r"^( ?)\d+ (ID .*) \d+\b", r"\1\2 PID", line) for line in lines if "Stats" not in line]
    rows = sorted(line.strip() for line in lines if line.strip().startswith("ID "))
    return "\n".join([*(line for line in lines if not line.strip().startswith("ID ")), *rows])


class Transcript:
    """What was printed, by the name of its place on the page."""

    def __init__(self) -> None:
        self.outputs: dict[str, str] = {}

    def note(self, name: str, text: str) -> None:
        self.outputs[name] = plain(text)

    def compare(self, page: Path) -> None:
        """Raises AssertionError where the page shows something else; writes it anew where REWRITE is set."""
        text = page.read_text()
        for name, output in self.outputs.items():
            block = re.compile(rf"(<!-- walk: {name} -->\n```text\n)(.*?)(```)", re.DOTALL)
            found = block.search(text)
            assert found is not None, f"{page} has no place for {name}"
            if os.environ.get(REWRITE):
                text = block.sub(lambda match, output=output: f"{match[1]}{output}\n{match[3]}", text)
            else:
                assert found[2].rstrip("\n") == output, f"{page}: {name} prints\n{output}"
        if os.environ.get(REWRITE):
            page.write_text(text)
