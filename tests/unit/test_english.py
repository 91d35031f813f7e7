"""The word list of `make lint` finds what it is for, and an area can only get better."""

import tomllib

from kit.english import LIST, Finding, area, found_in, judged, rules, shrunk

RULES = rules(tomllib.loads(LIST.read_text()))


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


def test_an_area_may_have_as_many_as_the_list_allows_and_no_more() -> None:
    found = [Finding("libs/muster/core/quota/a.py", 3, "whom", "name it"), Finding("docs/x.md", 1, "mend", "fix")]
    assert [area(each.path) for each in found] == ["libs/muster/core/quota", "docs/x.md"]
    assert judged(found, {"libs/muster/core/quota": 1, "docs/x.md": 1}) == []
    wrong = judged(found, {"libs/muster/core/quota": 1})
    assert wrong[0] == "docs/x.md:1: 'mend': fix"
    assert wrong[-1].startswith("docs/x.md: 1 turns of phrase")


def test_the_numbers_go_down_only() -> None:
    text = '[words]\n"x" = "y"\n[allowed]\n"docs" = 3\n"libs/a" = 2\n"libs/b" = 1\n'
    assert shrunk(text, {"docs": 5, "libs/a": 1}).endswith('[allowed]\n"docs" = 3\n"libs/a" = 1\n')
