"""Every sentence has its text in every language, with the same values. The reader chooses the language."""

import pytest

from kit.histories.files import read as history
from kit.messages import FOLDER, LANGUAGES, PAGES, TAGS, compiled, faults, page_texts, read
from kit.sentences import told
from muster import languages
from muster.model.language import counted, say, speaking
from muster.model.text import few, span


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_message_has_a_text_with_the_same_values(language: str) -> None:
    """`python -m kit.messages --write` adds new ids and takes unused ones out; a translator writes the texts."""
    assert not faults(language)
    made = (FOLDER / language / "LC_MESSAGES" / "muster.mo").read_bytes()
    assert made == compiled(read(language)), "muster.mo is not of muster.po: python -m kit.messages --write"
    assert (PAGES / f"{TAGS[language]}.json").read_text() == page_texts(language), "of the dashboard: the same"


def test_a_reader_gets_the_language_that_the_reader_names() -> None:
    tags = {"zh_CN.UTF-8": "zh-CN", "zh-Hans": "zh-CN", "zh": "zh-CN", "en-GB": "en", "C": "en", "de": ""}
    assert {name: languages.tag_of(name) for name in tags} == tags
    accepted = {
        "zh-CN,zh;q=0.9,en;q=0.8": "zh-CN",
        "de,en;q=0.5,zh;q=0.4": "en",
        "": "en",
        "zh;q=0": "en",
        ";q=x": "en",
    }
    assert {header: languages.preferred(header) for header in accepted} == accepted
    assert languages.of_terminal({"LANG": "zh_CN.UTF-8"}) == "zh-CN"
    assert languages.of_terminal({"LANG": "zh_CN.UTF-8", "LC_ALL": "C"}) == "en"
    assert languages.of_terminal({"LANG": "C.UTF-8", "MUSTER_LANG": "zh"}) == "zh-CN"


def test_numbers_names_and_times_in_another_language() -> None:
    with speaking(languages.catalogue("zh-CN")):
        assert (span(754_000), counted(3, "job"), few(["a", "b"])) == ("12 分钟 34 秒", "3 个作业", "a、b")
        assert say("{job} would start later", job="a/b") == "a/b 会推迟启动"
        assert languages.spoken() == "zh-CN"
    assert (span(754_000), counted(3, "job"), few(["a", "b"]), languages.spoken()) == (
        "12 min 34 s",
        "3 jobs",
        "a, b",
        "en",
    )


ENGLISH = ["is", "are", "was", "were", "the", "has", "have", "and", "not", "its", "for"]


@pytest.mark.parametrize("name", ("demo-teams", "demo-kai", "turmoil-kai", "wild-placement", "tree-reclaim"))
def test_no_english_is_left_in_a_chinese_sentence(name: str) -> None:
    left = {text for _, text in told(history(name), 50, "zh-CN") if set(text.split()) & set(ENGLISH)}
    assert not left
