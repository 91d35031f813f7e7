"""Placement: time per gang by nodes and members, and how much of a real GPU cluster ends up allocated.

Time: a cluster in use (every node filled at random, so that hardly two nodes have the same left), and one that is
empty; a gang of M one-GPU pods is placed and thrown away again. Reported is the median and the slope in M and N.

Share: the public openb trace (MUSTER_TEST_TRACES names the folder): pods arrive until what they asked for is 130 % of
the cluster's GPUs; who does not fit is turned away. Random and BestFit are placed in the same run, and the published
figures of the trace's own simulator stand beside them.

Run: python tests/perf/bench_placement.py [--seeds 3] [--nodes 100 1000 5000] [--members 1 8 64 512]
"""

from __future__ import annotations

import argparse
import csv
import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

from figures import Progress, Table

from kit import nodes
from muster.core.placement.choices import choices
from muster.core.placement.nodeledger import NodeLedger, Occupant
from muster.core.placement.place import place
from muster.core.placement.view import Ask, View
from muster.model.placing import ANYWHERE, GPU, NodeTerm, PodRules, Requirement

MIB = 2**20
ARRIVED_PCT = 130


def busy(count: int, rng: Random) -> NodeLedger:
    """Nodes of 8 GPUs, each with odd amounts taken."""
    found = NodeLedger()
    for index in range(count):
        found.node_observed(nodes.node(f"n{index:05}", cpu=96, memory=768, gpu=8))
    for index in range(count):
        request = {"cpu": rng.randint(1, 64_000), "memory": rng.randint(1, 400) * 2**30, GPU: rng.randint(0, 6) * 1000}
        found.settle(f"pod-{index}", Occupant(f"n{index:05}", "other", request))
    for cpu, gpu, times in ((4, 1, 50), (8, 1, 20), (16, 2, 20), (48, 8, 10)):
        found.mix.learn({"cpu": cpu * 1000, "memory": 2**34, GPU: gpu * 1000}, ANYWHERE, times)
    return found


def empty(count: int, _rng: Random) -> NodeLedger:
    return nodes.ledger(*(nodes.node(f"n{index:05}", cpu=96, memory=768, gpu=8) for index in range(count)))


def per_gang_us(found: NodeLedger, members: int, rounds: int) -> float:
    """µs per gang: a head and its workers, placed whole on a fresh view."""
    head, workers = nodes.ask("head", 1, cpu=2, memory=8), nodes.ask("worker", members, cpu=4, memory=16, gpu=1)
    taken = []
    for _ in range(rounds):
        began = time.perf_counter()
        short = place(View(found), [head, workers] if members > 1 else [workers])
        taken.append(time.perf_counter() - began)
        assert short is None or members > 100, short
    return statistics.median(taken) * 1e6


def measure(counts: Sequence[int], members: Sequence[int], rounds: int, say: Progress) -> Table:
    """Time per gang, and how it grows with members and with nodes."""
    found: list[dict[str, float]] = []
    for index in range(rounds):
        say(f"placement: round {index + 1} of {rounds}")
        figures: dict[str, float] = {}
        for name, make in (("no two nodes alike", busy), ("empty nodes", empty)):
            took: dict[tuple[int, int], float] = {}
            for count in counts:
                ledger = make(count, Random(1))
                for size in members:
                    took[count, size] = per_gang_us(ledger, size, 5)
                    figures[f"{name}: {count:,} nodes, {size} members, µs"] = took[count, size]
            low, high = (counts[0], members[0]), (counts[-1], members[-1])
            figures[f"{name}: {high[1]} members against {low[1]}"] = took[high] / took[high[0], low[1]]
            figures[f"{name}: {high[0]:,} nodes against {low[0]:,}"] = took[high] / took[low[0], high[1]]
        found.append(figures)
    about = (
        "Time to place a whole gang, a head and its one-GPU workers, or to find that it does not fit: where every node "
        "has other amounts left, and where all are empty. The ratios are those of the largest gang and cluster."
    )
    return Table("Placing a gang", about, found)


# --- openb ------------------------------------------------------------------------------------------------------


def openb_cluster(folder: Path) -> tuple[NodeLedger, int]:
    found, capacity = NodeLedger(), 0
    for row in csv.DictReader((folder / "openb_nodes.csv").open()):
        gpus = int(row["gpu"])
        capacity += gpus * 1000
        fact = nodes.node(row["sn"], labels={"model": row["model"]})
        allocatable = {
            "cpu": int(row["cpu_milli"]),
            "memory": int(row["memory_mib"]) * MIB,
            GPU: gpus * 1000,
        }
        state = type(fact.node)(ref=fact.node.ref, rv=fact.node.rv, allocatable=allocatable, labels=fact.node.labels)
        found.node_observed(type(fact)(node=state))
    return found, capacity


def openb_asks(folder: Path, workload: str) -> list[Ask]:
    asks = []
    for row in csv.DictReader((folder / f"openb_pods_{workload}.csv").open()):
        count, milli = int(row["num_gpu"]), int(row["gpu_milli"])
        share = milli if count == 1 and milli < 1000 else 0
        request = {"cpu": int(row["cpu_milli"]), "memory": int(row["memory_mib"]) * MIB}
        if count and not share:
            request[GPU] = count * 1000
        rules: dict[str, object] = {"share": share}
        if row.get("gpu_spec"):
            models = tuple(row["gpu_spec"].split("|"))
            rules["nodes"] = (NodeTerm(labels=(Requirement("model", "In", models),)),)
        asks.append(Ask(row["name"], 1, request, "", PodRules(**rules)))
    return asks


def gpus_of(ask: Ask) -> int:
    return ask.request.get(GPU, 0) + ask.rules.share


def arrivals(asks: list[Ask], capacity: int, rng: Random) -> list[Ask]:
    """Pods in random order, with as many drawn again as it takes to ask for 130 % of the GPUs."""
    stream = list(asks)
    total = sum(map(gpus_of, stream))
    while total * 100 < capacity * ARRIVED_PCT:
        stream.append(rng.choice(asks))
        total += gpus_of(stream[-1])
    rng.shuffle(stream)
    taken, total = [], 0
    for each in stream:
        if total * 100 >= capacity * ARRIVED_PCT:
            break
        total += gpus_of(each)
        taken.append(each)
    return taken


def put(found: NodeLedger, ask: Ask, policy: str, rng: Random, key: str) -> bool:
    view = View(found)
    if policy == "Muster":
        if place(view, [ask]) is not None:
            return False
    elif policy == "Random":
        spots = [(c, n) for c in choices(view, ask) for n in c.names]
        if not spots:
            return False
        choice, name = rng.choice(sorted(spots, key=lambda each: each[1]))
        view.take(ask, choice.need, name, 1)
    else:
        fitting = choices(view, ask)
        if not fitting:
            return False
        choice = min(fitting, key=lambda each: (each.left, each.first))
        view.take(ask, choice.need, choice.first, 1)
    taken = view.taken[0]
    found.settle(key, Occupant(taken.node, "", ask.request, 1, ask.rules, list(taken.devices)))
    return True


def openb(folder: Path, workload: str, policy: str, seed: int) -> tuple[float, float]:
    """(allocated share of the GPUs in %, ms per pod)."""
    rng = Random(seed)
    found, capacity = openb_cluster(folder)
    allocated, began = 0, time.perf_counter()
    stream = arrivals(openb_asks(folder, workload), capacity, rng)
    for index, ask in enumerate(stream):
        if policy == "Muster":
            found.learn(ask.rules)
            found.mix.learn(ask.request, ask.rules, 1)
        elif index == 0:
            found.learn(PodRules(node_labels={"model": ""}))
            found.mix.used.clear()
        if put(found, ask, policy, rng, f"{index}"):
            allocated += gpus_of(ask)
    return allocated / capacity * 100, (time.perf_counter() - began) / len(stream) * 1e3


def measure_shares(folder: Path, workloads: Sequence[str], seeds: int, say: Progress) -> list[Table]:
    """How much of the openb cluster ends up allocated; one table per workload."""
    with (folder / "openb_anchor_alloc.csv").open() as text:
        published = {
            (row["workload"], row["policy"]): row["alloc_pct_mean"]
            for row in csv.DictReader(text)
            if row["arrived_pct"] == str(ARRIVED_PCT)
        }
    tables = []
    for workload in workloads:
        found: list[dict[str, float]] = []
        for seed in range(seeds):
            say(f"openb {workload}: seed {seed + 1} of {seeds}")
            runs = {policy: openb(folder, workload, policy, seed) for policy in ("Random", "BestFit", "Muster")}
            figures = {f"{policy}, % of GPUs": share for policy, (share, _) in runs.items()}
            found.append({**figures, "Muster against BestFit": runs["Muster"][0] / runs["BestFit"][0]})
        told = ", ".join(f"{policy} {published[workload, policy]} %" for policy in ("Random", "BestFit", "FGD"))
        about = (
            f"openb, workload {workload}: pods arrive one by one until they have asked for {ARRIVED_PCT} % of the "
            f"GPUs; who does not fit is turned away. Published for the trace's own simulator: {told}."
        )
        tables.append(Table(f"GPUs allocated ({workload})", about, found))
    return tables


def traces() -> Path | None:
    """Where the public traces are; MUSTER_TEST_TRACES names it."""
    folder = os.environ.get("MUSTER_TEST_TRACES", "")
    return Path(folder) if folder else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="*", default=[100, 1_000, 5_000])
    parser.add_argument("--members", type=int, nargs="+", default=[1, 8, 64, 512])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workloads", nargs="*", default=["default"])
    options = parser.parse_args()
    tables = [measure(options.nodes, options.members, options.rounds, Progress())] if options.nodes else []
    folder = traces()
    if folder is None:
        print("MUSTER_TEST_TRACES is not set: the openb trace is left out")
    else:
        tables += measure_shares(folder, options.workloads, options.seeds, Progress())
    for table in tables:
        print(table.about, *table.lines(), sep="\n")


if __name__ == "__main__":
    main()
