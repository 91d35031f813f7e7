"""Placement: time per gang by nodes and members, and how much of a real GPU cluster ends up allocated.

Time: a cluster in use (every node filled at random, so that hardly two nodes have the same left), and one that is
empty; a gang of M one-GPU pods is placed and thrown away again. Reported is the median and the slope in M and N.

Share: the public openb trace (MUSTER_TRACES names the folder): pods arrive until what they asked for is 130 % of the
cluster's GPUs; who does not fit is turned away. Random and BestFit are placed in the same run, and the published
figures of the trace's own simulator stand beside them.

Run: python tests/perf/bench_placement.py [--seeds 3] [--nodes 100 1000 5000] [--members 1 8 64 512]
"""

from __future__ import annotations

import argparse
import csv
import os
import statistics
import time
from pathlib import Path
from random import Random

from kit import nodes
from muster.core.placement.ledger import NodeLedger, Occupant
from muster.core.placement.place import choices, place
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


def times(options: argparse.Namespace) -> None:
    print(f"{'':22}" + "".join(f"{members:>12}" for members in options.members) + "  members: us per gang (median)")
    for name, make in (("busy", busy), ("empty", empty)):
        for count in options.nodes:
            found = make(count, Random(1))
            row = [per_gang_us(found, members, options.rounds) for members in options.members]
            print(f"{name:>8} {count:>6} nodes " + "".join(f"{each:12.0f}" for each in row), flush=True)


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
        if row["gpu_spec"]:
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
    if policy == "ours":
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
        if policy == "ours":
            found.learn(ask.rules)
            found.mix.learn(ask.request, ask.rules, 1)
        elif index == 0:
            found.learn(PodRules(node_labels={"model": ""}))
            found.mix.used.clear()
        if put(found, ask, policy, rng, f"{index}"):
            allocated += gpus_of(ask)
    return allocated / capacity * 100, (time.perf_counter() - began) / len(stream) * 1e3


def shares(options: argparse.Namespace) -> None:
    traces = os.environ.get("MUSTER_TRACES", "")
    if not traces:
        print("MUSTER_TRACES is not set: the openb trace is left out")
        return
    folder = Path(traces)
    anchors = {
        (row["workload"], row["policy"]): row["alloc_pct_mean"]
        for row in csv.DictReader((folder / "openb_anchor_alloc.csv").open())
        if row["arrived_pct"] == str(ARRIVED_PCT)
    }
    for workload in options.workloads:
        print(f"openb {workload}: GPUs allocated at {ARRIVED_PCT} % asked for, % of all; {options.seeds} seeds")
        for policy in ("Random", "BestFit", "ours"):
            runs = [openb(folder, workload, policy, seed) for seed in range(options.seeds)]
            share = [each[0] for each in runs]
            print(
                f"  {policy:>8}: {statistics.mean(share):6.2f} ({min(share):.2f} to {max(share):.2f}), "
                f"{statistics.median(each[1] for each in runs):.2f} ms per pod",
                flush=True,
            )
        told = ", ".join(f"{policy} {anchors[workload, policy]}" for policy in ("Random", "BestFit", "FGD"))
        print(f"  published: {told}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="*", default=[100, 1_000, 5_000])
    parser.add_argument("--members", type=int, nargs="+", default=[1, 8, 64, 512])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workloads", nargs="*", default=["default"])
    options = parser.parse_args()
    if options.nodes:
        times(options)
    if options.workloads:
        shares(options)


if __name__ == "__main__":
    main()
