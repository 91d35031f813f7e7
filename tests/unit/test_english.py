"""The word list and the two measures of `make lint` find dialect, and an area can only get better."""

import re
import tomllib

from kit.english import LIST, Finding, Measure, above, area, found_in, judged, measured, nameless, prose, rules, shrunk

TABLE = tomllib.loads(LIST.read_text())
PRONOUNS = re.compile(TABLE["counted"]["pronouns"], re.IGNORECASE | re.VERBOSE)
RULES = rules(TABLE)


def words(text: str) -> list[str]:
    return [each.words for each in found_in("docs/x.md", text, RULES)]


def test_the_dialect_is_found_also_over_the_end_of_a_line() -> None:
    assert words("Whoever waits is\ntold, and whomever it may concern") == ["Whoever", "whomever", "is told"]
    assert words("how to mend it; mending; recommended; mental") == ["mend", "mending"]
    assert words("who waits where") == ["who"]
    assert words("nobody knows who\nstands\nin vain, afresh") == ["nobody", "who", "stands", "afresh", "in vain"]
    assert words("it gives its quota\nback and gives way") == ["gives its quota back", "gives way"]
    assert words("the sum of\nwhat is left, and what to do") == ["of what"]
    assert words("users who wait; test_nobody_waits; 0037-nobody-passes.md; standings; backed") == []
    assert words("A job stays suspended until it fits its team's quota and every parent quota.") == []


def test_a_variable_that_names_nothing_is_found_and_a_field_is_not() -> None:
    module = """
class Row:
    found: int
    said = 1

def seen(what, *, each=0):
    found = [said for said in each]
    match found:
        case [*what]:
            pass
    return dict(found=each.found)

lambda each: each
"""
    names = [(finding.line, finding.words) for finding in nameless("libs/x.py", module, TABLE["names"])]
    assert sorted(names) == [(6, "each"), (6, "what"), (7, "found"), (7, "said"), (9, "what"), (13, "each")]


def test_an_area_may_have_as_many_as_the_list_allows_and_no_more() -> None:
    found = [Finding("libs/muster/core/quota/a.py", 3, "whom", "name it"), Finding("docs/x.md", 1, "mend", "fix")]
    assert [area(each.path) for each in found] == ["libs/muster/core/quota", "docs/x.md"]
    assert judged(found, {"libs/muster/core/quota": 1, "docs/x.md": 1}) == []
    assert [area(path) for path in ("libs/muster/core/stage.py", "libs/muster/ports.py")] == [
        "libs/muster/core",
        "libs/muster",
    ]
    wrong = judged(found, {"libs/muster/core/quota": 1})
    assert wrong[0] == "docs/x.md:1: 'mend': fix"
    assert wrong[-1].startswith("docs/x.md: 1 turns of phrase")


def test_prose_is_measured_without_code_links_and_names() -> None:
    page = """# Jobs that wait

Each queue is one tree. See [this page](that/which.md), `what it is` or what_it_is!

```sh
that is it
```
- Those of it:
"""
    assert [*prose("docs/x.md", page)] == [page]
    assert measured(page, PRONOUNS) == Measure(words=15, pronouns=4, sentences=4), "that, one; those, it"
    module = '''"""What a job asks."""\ndef f() -> int:\n    """Its GPUs. None."""\n    # which\n'''
    assert [*prose("a.py", module)] == ["What a job asks.", "Its GPUs. None."]
    assert [*prose("a.toml", "it")] == []


def test_a_sentence_cut_in_two_has_the_same_share() -> None:
    long, cut = (measured(text, PRONOUNS) for text in ("It waits, and they run.", "It waits. And they run."))
    assert (long.numbers()["pronouns"], long.sentences, cut.sentences) == (cut.numbers()["pronouns"], 1, 2)
    assert measured("this queue, each job; of this, each of", PRONOUNS).pronouns == 2


def test_an_area_without_a_number_must_reach_the_goal() -> None:
    areas = {"docs/x.md": Measure(words=1000, pronouns=81, sentences=100)}
    table = {"goals": {"pronouns": 80, "sentence": 100}, "pronouns": {"docs/x.md": 81}, "sentence": {}}
    assert above(areas, table) == []
    assert above(areas, table | {"pronouns": {}})[0].startswith("docs/x.md: pronouns 81, allowed are 80")


def test_the_numbers_go_down_only() -> None:
    text = (
        '[words]\n"x" = "y"\n[allowed]\n"docs" = 3\n"libs/a" = 2\n"libs/b" = 1\n'
        '[pronouns]\n"docs" = 90\n"libs/a" = 99\n'
    )
    numbers = {"allowed": {"docs": 5, "libs/a": 1}, "pronouns": {"docs": 80, "libs/a": 95}}
    assert shrunk(text, numbers, {"pronouns": 80}).endswith(
        '[allowed]\n"docs" = 3\n"libs/a" = 1\n[pronouns]\n"libs/a" = 95\n'
    )
