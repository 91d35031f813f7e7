"""What the pages name is there: files, commands, settings, metrics, services."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from cyclopts import CycloptsError

from kit.compose import REPOSITORY
from kit.pages import PAGES, Block, lines, links, shell
from kit.picture import PICTURE, drawn
from muster.core.cell.deciders import DECIDERS
from muster.runtime.config import PREFIX, Config
from muster.telemetry.instruments import COUNTERS, GAUGES, HISTOGRAMS
from muster_cli.main import make_app
from muster_tools.catalogue import emitters

SERVICES = sorted(path for path in (REPOSITORY / "services").glob("muster_*") if path.is_dir())
KUBECTL = {
    "annotate",
    "apply",
    "create",
    "delete",
    "describe",
    "exec",
    "get",
    "label",
    "patch",
    "port-forward",
    "rollout",
    "scale",
    "set",
} | {"wait"}
SAID_OF_A_SERVICE = ("Stage", "Folds", "Emits", "Owns", "When it is down", "Scales by", "Metrics")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in links(page):
        assert (page.parent / target).resolve().exists(), target


def test_each_decision_has_a_number_of_its_own() -> None:
    files = sorted((REPOSITORY / "docs" / "decisions").glob("0*.md"))
    assert len({path.name[:4] for path in files}) == len(files)
    for path in files:
        assert path.read_text().startswith(f"# {int(path.name[:4])}. "), path.name


def test_each_decision_is_listed_once_under_its_title() -> None:
    folder = REPOSITORY / "docs" / "decisions"
    titles = {path.name: path.read_text().partition("\n")[0] for path in folder.glob("0*.md")}
    listed = re.findall(r"^- \[(.+)\]\((0.+\.md)\)$", (folder / "README.md").read_text(), re.MULTILINE)
    assert {(title, name) for title, name in listed} == {
        (text.removeprefix("# "), name) for name, text in titles.items()
    }
    assert len(listed) == len(titles)


def test_a_superseded_decision_names_its_file_its_commit_and_a_record_in_force() -> None:
    folder = REPOSITORY / "docs" / "decisions"
    rows = (folder / "README.md").read_text().partition("## Superseded")[2].splitlines()
    gone = [re.match(r"\| (\d+)\. .+ \| `(\d{4})-.+\.md` \| [0-9a-f]{8,} \| \[\d+\]\(0", row) for row in rows]
    numbers = [found.groups() for found in gone if found]
    assert len(numbers) == sum(row.startswith("| ") for row in rows) - 2, "| Record | File | Commit | Replaced by |"
    for number, file in numbers:
        assert int(number) == int(file)
        assert not [*folder.glob(f"{file}-*")], f"decision {number} is in force"


def test_no_folder_of_the_docs_is_empty() -> None:
    for folder in (REPOSITORY / "docs").rglob("*/"):
        assert not folder.is_dir() or any(folder.iterdir()), folder


@pytest.mark.parametrize("service", SERVICES, ids=lambda path: path.name)
def test_every_service_says_what_it_does(service: Path) -> None:
    text = (service / "README.md").read_text()
    assert len(text.splitlines()) <= 40
    if service.name != "muster_cli":
        assert re.findall(r"^- \*\*(.+?)\*\*:", text, re.MULTILINE) == list(SAID_OF_A_SERVICE)
        assert f"python -m {service.name}" in text
        named = re.search(r"- \*\*Stage\*\*: `(\w+)` in \[`((?:core|told)/\w+)`\]\(\S+\), see `(\w+\.py)`", text)
        assert named is not None
        stage, room, module = named.groups()
        assert re.search(
            rf"^class {stage}\b.*:$", (REPOSITORY / "libs" / "muster" / room / module).read_text(), re.MULTILINE
        )
        assert stage in (service / "__main__.py").read_text(), "its __main__ names its stage class"


DECIDING = [path for path in SERVICES if path.name.removeprefix("muster_") in {*DECIDERS, "autoscaler_bridge"}]


@pytest.mark.parametrize("service", DECIDING, ids=lambda path: path.name)
def test_a_service_names_every_event_it_writes_and_no_other(service: Path) -> None:
    writes = re.search(r"- \*\*Emits\*\*:(.*?)(?=\n- \*\*)", (service / "README.md").read_text(), re.DOTALL)
    assert writes is not None
    stage, emitted = service.name.removeprefix("muster_"), emitters()
    mine = {tag for tag, stages in emitted.items() if stage in stages}
    if stage == "watcher":
        mine = {"object_unreadable"}  # It writes every fact.
    named = set(re.findall(r"`([a-z_]+)`", writes[1])) & set(emitted)
    assert mine - named == set()
    said_first = set(re.findall(r"`([a-z_]+)`", writes[1].partition(". The quota accountant")[0])) & set(emitted)
    assert said_first - mine == set()


def test_metrics_that_are_named_exist() -> None:
    known = {*COUNTERS, *(f"{name}_total" for name in COUNTERS), *GAUGES, *HISTOGRAMS}
    modules = {path.name for path in SERVICES}
    for page in PAGES:
        for name in re.findall(r"`(muster_[a-z_]+)`", page.read_text()):
            assert name in known | modules, f"{page}: {name}"


def test_settings_that_are_named_exist() -> None:
    known = {f"{PREFIX}{name.upper()}" for name in Config.__struct_fields__}
    known |= {"MUSTER_CONFIG", "MUSTER_PUB", "MUSTER_LANG"}
    for page in PAGES:
        for name in re.findall(r"\bMUSTER_[A-Z_]+\b", page.read_text()):
            assert name in known or name.startswith(("MUSTER_TEST_", "MUSTER_LOG_", "MUSTER_NEXT_")), f"{page}: {name}"


def commands() -> list[tuple[Block, str]]:
    return [(block, line) for block in [*shell("sh cluster"), *shell("sh")] for line in lines(block)]


@pytest.mark.parametrize(
    ("block", "line"),
    [each for each in commands() if each[1].startswith("muster ")],
    ids=lambda each: each if isinstance(each, str) else each.name,
)
def test_a_command_of_ours_can_be_given_like_that(block: Block, line: str) -> None:
    words = shlex.split(re.split(r" [|>] ", line)[0])
    try:
        make_app().parse_args(words[1:])
    except CycloptsError as err:
        raise AssertionError(f"{block.name}: {line}: {err}") from err


@pytest.mark.parametrize(
    ("block", "line"),
    [each for each in commands() if each[0].info == "sh cluster"],
    ids=lambda each: each if isinstance(each, str) else each.name,
)
def test_what_needs_a_cluster_names_what_there_is(block: Block, line: str) -> None:
    words = shlex.split(line)
    assert words[0] in ("muster", "kubectl", "docker", "openssl", "echo"), f"{block.name}: {line}"
    if words[0] == "kubectl":
        assert KUBECTL & set(words), f"{block.name}: {line}"
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == "-f" and following != "-":
            assert (REPOSITORY / following).exists(), f"{block.name}: {line}"


def test_targets_of_make_that_are_named_exist() -> None:
    named = set(re.findall(r"\bmake ([a-z]+)\b", "\n".join(page.read_text() for page in PAGES)))
    targets = set(re.findall(r"^([a-z]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    assert {line.split()[1] for _, line in commands() if line.startswith("make ")} <= targets
    assert named & targets
    done = subprocess.run(["make", "-n", "help"], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_picture_of_the_readme_is_what_the_commands_print() -> None:
    assert PICTURE.read_text(encoding="utf-8") == drawn(), "docs/demo.svg is stale: run `make picture`"


def test_the_glossary_names_events_that_exist() -> None:
    docs = REPOSITORY / "docs"
    known = set(re.findall(r"^\| `([a-z_]+)` \|", (docs / "events.md").read_text(), re.MULTILINE))
    for row in (docs / "reference" / "glossary.md").read_text().splitlines():
        cells = row.strip("|").split(" | ")
        if row.startswith("| ") and len(cells) == 3:
            assert set(re.findall(r"`([a-z_]+)`", cells[2])) <= known, row


def test_the_tree_of_the_readme_is_a_file() -> None:
    assert f"```yaml\n{(REPOSITORY / 'examples/tree.yaml').read_text()}```" in (REPOSITORY / "README.md").read_text()
