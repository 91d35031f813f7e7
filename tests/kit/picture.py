"""The picture of the README: a quota tree and the reason one job waits, from a small simulation, as SVG.

Made by `make schemas`. Nothing in it is drawn by hand: two GPU teams run through the real stages in virtual time, and
what is shown is what `muster queue tree` and `muster why` print.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text

from kit.traces import files
from muster.runtime.logkeeping.logfile import read_log
from muster.serving.board import board_of
from muster.told.views.narrator import Narrator
from muster.tracesim.jobsfile import read_trace
from muster.tracesim.runner import Options, simulate
from muster_cli.main import run
from muster_cli.render.queues import tree_lines

PICTURE = Path(__file__).parents[2] / "docs" / "demo.svg"
WIDTH = 120
CLUSTER = {
    "nodes": [{"count": 2, "gpus": 8}],
    "queues": {"vision": {"min": 8, "max": 16}, "text": {"min": 8, "max": 16}},
}
JOBS = """
resnet,vision,8,0,7200
segment,vision,2,60,5400
llama,text,4,120,7200
judge,text,2,180,3600
dino,vision,4,600,3600
vit,vision,2,840,3600
"""
UNTIL_S = 900
STYLE = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
    <style>
    .{unique_id}-matrix {{
        font-family: ui-monospace, Menlo, Consolas, monospace;
        font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width;
    }}
    .{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: arial; }}
    {styles}
    </style>
    <defs>
    <clipPath id="{unique_id}-clip-terminal">
      <rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
    </clipPath>
    {lines}
    </defs>
    {chrome}
    <g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
    {backgrounds}
    <g class="{unique_id}-matrix">
    {matrix}
    </g>
    </g>
</svg>
"""


def drawn() -> str:
    """The picture."""
    console = Console(
        record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor", highlight=False
    )
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.jsonl"
        simulate(read_trace(*files(Path(folder), CLUSTER, JOBS)), "muster", Options(until=UNTIL_S * 1000), log=log)
        narrator = Narrator()
        for stored in read_log(log):
            narrator.feed(stored)
        board = board_of(narrator.state)
        console.print(Text("$ muster queue tree", "bold"))
        for line in tree_lines(board, board.nodes):
            console.print(line, soft_wrap=True)
        console.print()
        console.print(Text("$ muster why vision/dino", "bold"))
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            code = run(["why", "vision/dino", "--log", str(log)])
        assert code == 0, said.getvalue()
        paragraph = said.getvalue().partition("\n\n")[0]
        for text in paragraph.splitlines():
            console.print(Text(text), soft_wrap=True)
    svg = console.export_svg(title="muster", theme=SVG_EXPORT_THEME, code_format=STYLE, unique_id="muster")
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(drawn(), encoding="utf-8")
