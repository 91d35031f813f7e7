"""Two logs on the canonical schedule: races make no difference, rules and inputs do."""

from random import Random

import pytest

from kit import facts
from kit.bench import Bench
from muster.runtime.logkeeping.logfile import write_log
from muster.runtime.replaying.canonical import canonical, difference
from muster_cli.main import run


def tree(cpu: int) -> facts.TreeNodeSpec:
    leaves = (facts.node("a", {"cpu": 2}, {"cpu": cpu}, ("a",)), facts.node("b", {"cpu": 2}, {"cpu": 8}, ("b",)))
    return facts.node("root", {"cpu": 8}, {"cpu": 8}, children=leaves)


def recorded(order: Random | None, cpu: int = 8, *, late: int = 0) -> Bench:
    """A log of a dozen jobs that come and go; ``order``: in which the stages decide."""
    bench = Bench(order, check=False)
    bench.facts(facts.tree(tree(cpu)))
    bench.synced()
    bench.settle()
    for index in range(12):
        bench.facts(facts.seen(facts.job(f"job-{index}", "ab"[index % 2], cpu=1 + index % 3)))
        if index >= late:
            bench.settle()
        if index % 3 == 2:
            bench.facts(facts.gone(f"job-{index - 2}", "ab"[(index - 2) % 2]))
            bench.settle()
    return bench


@pytest.mark.parametrize("seed", range(5))
def test_in_which_order_stages_decided_makes_no_difference(seed):
    one, other = recorded(None), recorded(Random(seed), late=6)
    assert [stored.commit.events for stored in one.log] != [stored.commit.events for stored in other.log]
    found, same = difference(one.log, other.log)
    assert found is None
    assert same == len(list(canonical(one.log))) > 12


def test_another_limit_is_named_by_the_first_decision_it_changes():
    found, same = difference(recorded(None).log, recorded(None, cpu=3).log)
    assert same == 0
    assert (found.one.stage, found.one.event["type"]) == ("quota_accountant", "quota_tree_accepted")
    assert found.one.event["tree"]["nodes"][1]["limit"] == {"cpu": 8000}
    assert found.other.event["tree"]["nodes"][1]["limit"] == {"cpu": 3000}


def test_a_log_that_ends_earlier_differs_where_it_ends():
    whole = recorded(None).log
    found, same = difference(whole, whole[:-8])
    assert found.other is None
    assert found.index == same == len(list(canonical(whole[:-8])))


def test_the_command_says_what_differs_and_ends_with_5(tmp_path, capsys):
    paths = [str(tmp_path / f"{name}.jsonl") for name in "abc"]
    for path, bench in zip(paths, (recorded(None), recorded(Random(3)), recorded(None, cpu=3)), strict=True):
        write_log(tmp_path / path, bench.log)
    assert run(["diff", paths[0], paths[1]]) == 0
    assert capsys.readouterr().out.endswith(" decisions, no difference\n")
    assert run(["diff", paths[0], paths[2]]) == 5
    told = capsys.readouterr().out
    assert "0 decisions are the same; then they differ:" in told
    assert "differs in  tree" in told
    assert run(["diff", paths[0], "none.jsonl"]) == 3
