"""``python -m muster_tools.pages``: writes the reference pages of the command and of the settings from the code.

With ``--check`` the command writes nothing and fails when a page is not up to date.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

from rich.console import Console

from muster.model.podtrouble import PodTrouble
from muster.runtime.config import PREFIX
from muster.told.codes.codetable import CODES, POD_CODES
from muster.told.wording.meanings import MEANINGS
from muster.told.wording.pods import WORDS, matter
from muster_cli import completing, exits
from muster_cli.helping import MAX_WIDTH, overview
from muster_cli.main import make_app
from muster_cli.registry import COMMANDS, GROUPS
from muster_tools.attributes import Setting, settings

FOLDER = Path("docs/reference")
NOTICE = "<!-- Written by `python -m muster_tools.pages`: change the help of the command instead. -->"


def pages() -> dict[str, str]:
    """File name -> text of every page."""
    return {
        "cli.md": command_page(),
        "exit-codes.md": exit_code_page(),
        "configuration.md": configuration_page(),
        "status.md": status_page(),
    }


def status_page() -> str:
    """Every code of the status of a job."""
    parts = [
        "<!-- Written by `python -m muster_tools.pages` from libs/muster/told/wording/meanings.py. -->",
        "",
        "# The status of a job",
        "",
        "One pure function gives the status of a job, and every reader asks it: `muster why`, `position`, `ls`, the "
        "levers, `muster up`, the QueueUnit and the Event on the job.\n\n"
        "The state is how far a job has come (what `muster ls --state` takes); the code says why it is there. "
        "The QueueUnit shows kube-queue's own words where it has some:\n`Succeed` and `Failed` for finished "
        "jobs, `Admitted` from the reservation until it runs.",
        "",
        "| Code | State | What it means | Shown also as | What to do |",
        "| --- | --- | --- | --- | --- |",
    ]
    for code, row in CODES.items():
        shown = ["QueueUnit"] if {*row.phases} - {"gone", "outside"} else []
        shown += ["Event"] if row.event != "never" else []
        means, do = MEANINGS[code]
        parts.append(f"| `{code}` | {', '.join(row.phases)} | {means} | {', '.join(shown) or '-'} | {do} |")
    parts += [
        "",
        "## Why pods of an admitted job do not run, or have failed",
        "",
        "`muster why`, `ls` (`cause` for programs), an Event on the job and the public event `workload_held_up` say "
        "the first of these that a pod of the job has.",
        "",
        "| Cause | What it means | What to do |",
        "| --- | --- | --- |",
    ]
    for pod_code in POD_CODES:
        trouble = PodTrouble(pod_code, container="NAME", image="IMAGE")
        parts.append(f"| `{pod_code}` | {sentence(matter(trouble))} | {sentence(WORDS[pod_code][1])} |")
    return "\n".join(parts) + "\n"


def sentence(text: str) -> str:
    """With a capital and a full stop."""
    return f"{text[:1].upper()}{text[1:]}."


def command_page() -> str:
    """Every help page, the overview first."""
    parts = [
        NOTICE,
        "",
        "# The `muster` command",
        "",
        "`kubectl muster ...` is the same. Results go to stdout and everything else to stderr; there is colour on "
        "terminals only, and none with `NO_COLOR`. What the exit codes mean: [exit codes](exit-codes.md).",
        "",
        _block(overview(width=MAX_WIDTH)),
    ]
    for page in COMMANDS:
        group = page.name.partition(" ")[0]
        heading = "###" if group in GROUPS else "##"
        if group in GROUPS and page is next(command for command in COMMANDS if command.name.startswith(f"{group} ")):
            parts += ["", f"## muster {group}", "", _block(overview(group, MAX_WIDTH))]
        parts += ["", f"{heading} muster {page.name}", "", _block(help_of(page.name))]
    return "\n".join(parts) + "\n"


def help_of(name: str) -> str:
    """The output of ``muster NAME --help``."""
    out = io.StringIO()
    console = Console(file=out, width=2 * MAX_WIDTH, color_system=None, highlight=False)
    make_app(MAX_WIDTH).help_print(name.split(), console=console)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def _block(text: str) -> str:
    return f"```text\n{text.strip()}\n```"


def exit_code_page() -> str:
    """The meaning of each exit code."""
    rows = [f"| {code} | {meaning} |" for code, meaning in exits.MEANINGS.items()]
    services = (
        "Services (`python -m muster_watcher` and the others) end with 75 when they only need to be started again, "
    )
    return "\n".join(
        [
            NOTICE,
            "",
            "# Exit codes of `muster`",
            "",
            "They do not change between versions: scripts may rely on them.",
            "",
            "| Code | Meaning |",
            "| --- | --- |",
            *rows,
            "",
            services + "69 when something they need cannot be reached, and 78 when their configuration cannot work.",
            "",
        ]
    )


def configuration_page() -> str:
    """Every setting of a service."""
    rows = [
        f"| `{PREFIX}{item.name.upper()}` | {_shown(item.default)} | {_takes(item)} | {item.text} |"
        for item in settings()
    ]
    return "\n".join(
        [
            NOTICE.replace("the help of the command", "muster/runtime/config.py"),
            "",
            "# Settings of the services",
            "",
            "Every service reads the same environment variables. `MUSTER_CONFIG` names a YAML file with the same names",
            "in lower case and without the prefix; the environment wins over it. An unknown name is refused, and all",
            "that is wrong is said at once. `muster config show` prints what is in force and where it comes from.",
            "The chart takes the same names below `settings`: `--set settings.placement=spread`.",
            "",
            "| Variable | Default | Takes | What it does |",
            "| --- | --- | --- | --- |",
            *rows,
            "",
            "Traces: `OTEL_EXPORTER_OTLP_ENDPOINT` (or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`) turns them on; the other",
            "variables of the OpenTelemetry exporter work as everywhere.",
            "",
        ]
    )


def _shown(default: object) -> str:
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return "" if default == "" else f"`{default}`"


def _takes(setting: Setting) -> str:
    schema = setting.schema
    if "enum" in schema:
        return ", ".join(f"`{choice}`" for choice in schema["enum"])
    if schema["type"] != "integer":
        return {"boolean": "`true` or `false`", "string": "text"}[schema["type"]]
    least, most = schema.get("minimum"), schema.get("maximum")
    if most is not None:
        return f"a number from {least} to {most}"
    return "a number" if least is None else f"a number, {least} or more"


def main() -> int:
    check = "--check" in sys.argv[1:]
    stale = []
    made = {FOLDER / name: text for name, text in pages().items()} | {completing.TABLE: completing.table()}
    for path, text in made.items():
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(str(path))
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path}")
    if check and stale:
        print(f"{', '.join(stale)} is not what the help says; run `python -m muster_tools.pages`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
