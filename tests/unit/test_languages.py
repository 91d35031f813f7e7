"""Every sentence has its text in every language, with the same values. The reader chooses the language."""

import json
from pathlib import Path

import pytest

from kit.histories.files import read as history
from kit.messages import FOLDER, LANGUAGES, PAGES, TAGS, compiled, faults, page_of_help, page_texts, read
from kit.sentences import told
from kit.unsaid import english_in, unsaid
from muster import languages
from muster.model.language import counted, say, speaking
from muster.model.text import few, span
from muster_cli.helping import overview
from muster_cli.main import run
from muster_cli.registry import COMMANDS, GROUPS


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


def test_every_text_of_the_command_line_is_a_message() -> None:
    """A literal with English words is given to `say`, or to `marked` in a table of a module."""
    assert list(unsaid()) == []


def test_no_english_is_left_in_the_help_of_commands() -> None:
    with speaking(languages.catalogue("zh-CN")):
        pages = {group: overview(group, 100) for group in ("", *GROUPS)}
        pages |= {page.name: page_of_help(page.name) for page in COMMANDS}
    left = {name: words for name, text in pages.items() if (words := english_in(text))}
    assert not left


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("foo", "muster: 没有命令 'foo'；见 `muster --help`"),
        ("why --lg x", "muster why: 没有选项 --lg；您是指 --log 吗？；见 `muster why --help`"),
        ("priority a b --reason c", "muster priority: NUMBER 是整数，不能是 'b'；见 `muster priority --help`"),
        ("why x --log /nope", "muster why: 无法读取 /nope：没有这个文件；`muster export --out /nope` 会创建"),
        ("ls --state foo --log /nope", "没有状态 foo（--state）；有 "),
        ("simulate --day mars --out /nope", "没有 family 'mars'；有 "),
    ],
)
def test_an_error_of_a_command_is_in_the_language_of_the_reader(
    line: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with speaking(languages.catalogue("zh-CN")):
        assert run(line.split())
    assert told in capsys.readouterr().err


def test_lint_of_a_quota_tree_is_in_the_language_of_the_reader(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = {
        "apiVersion": "scheduling.sigs.k8s.io/v1beta1",
        "kind": "ElasticQuotaTree",
        "metadata": {"name": "tree", "namespace": "default"},
        "spec": {
            "root": {
                "name": "root",
                "max": {"cpu": 8},
                "min": {"cpu": 8},
                "children": [{"name": name, "max": {"cpu": 8}, "min": {"cpu": 6}} for name in ("a", "b")],
            }
        },
    }
    (tmp_path / "tree.yaml").write_text(json.dumps(tree))
    with speaking(languages.catalogue("zh-CN")):
        assert run(["quota", "lint", str(tmp_path / "tree.yaml")])
    lines = capsys.readouterr().out
    assert "违反     root：" in lines and "警告     " in lines and "整棵树会被拒绝" in lines
    assert not english_in(lines)
