"""docs/security.md and neighbours.md: a row for each threat and neighbour, and every test that they name is there."""

import os
import re

from kit.compose import REPOSITORY
from kit.deployed import rights_table

FILE = REPOSITORY / "docs" / "security.md"
PAGE = FILE.read_text()
DEFAULT = "tests/e2e/test_around_the_queue.py"


def rows() -> dict[int, str]:
    """{number of a threat: its last cell}"""
    found = {}
    for line in PAGE.partition("## Threats")[2].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if cells[0].isdigit():
            assert len(cells) == 4, line
            found[int(cells[0])] = cells[3]
    return found


def test_every_threat_has_a_row_with_a_test_or_says_what_is_left() -> None:
    assert sorted(rows()) == list(range(1, 21))
    for number, cell in rows().items():
        assert re.search(r"`[\w/]*test_\w+|`deploy/|Import contracts|Left: ", cell), number


def test_every_test_that_is_named_exists() -> None:
    files, tests = 0, 0
    for path, name in re.findall(r"`(?:(tests/[\w/]+(?:\.py)?|test_\w+\.py)(?:::)?)?(test_\w+)?`", PAGE):
        if not path and not name:
            continue
        file = REPOSITORY / (path if path.startswith("tests/") else f"tests/e2e/{path}" if path else DEFAULT)
        assert file.exists(), f"docs/security.md names {path}"
        files += 1
        if name:
            assert re.search(rf"^(async )?def {name}\(", file.read_text(), re.M), f"{file} has no {name}"
            tests += 1
    assert files >= 15
    assert tests >= 10


def test_each_neighbour_has_a_test() -> None:
    page = (REPOSITORY / "docs" / "howto" / "neighbours.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| ")][2:]
    for row in rows:
        found = re.search(r"`(test_\w+\.py)::(test_\w+)` \|$", row)
        assert found is not None, row
        [file] = (REPOSITORY / "tests").rglob(found[1])
        assert re.search(rf"^(async )?def {found[2]}\(", file.read_text(), re.M), f"{file} has no {found[2]}"
    assert len(rows) >= 8


def test_the_table_of_rights_is_that_of_the_roles() -> None:
    """The same roles that `test_own_writes` asks the API server about."""
    head, mark, rest = PAGE.partition("<!-- rights: ")
    words, _, rest = rest.partition("-->\n")
    _, end, after = rest.partition("<!-- /rights -->")
    text = f"{head}{mark}{words}-->\n{rights_table()}{end}{after}"
    if os.environ.get("MUSTER_TEST_REWRITE"):
        FILE.write_text(text)
    assert text == PAGE or os.environ.get("MUSTER_TEST_REWRITE"), "MUSTER_TEST_REWRITE=1 writes it"
