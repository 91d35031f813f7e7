"""Worker groups of every make, for judging what one worker offers: a table by name, and others drawn by chance."""

from __future__ import annotations

import random
from typing import Any

Object = dict[str, Any]

GIB = 2**30


def group(
    *, limits: Object | None = None, requests: Object | None = None, nodes: Object | None = None, **more: Any
) -> Object:
    """A worker group as its spec says it."""
    sizes = {name: each for name, each in (("limits", limits), ("requests", requests)) if each is not None}
    spec: Object = {"containers": [{"name": "ray", "resources": sizes}]}
    if nodes is not None:
        spec["nodeSelector"] = nodes
    return {"groupName": "g", "minReplicas": 0, "maxReplicas": 3, "template": {"spec": spec}, **more}


def slices(kind: str, topology: str) -> Object:
    return {"cloud.google.com/gke-tpu-accelerator": kind, "cloud.google.com/gke-tpu-topology": topology}


ONE = {"cpu": "1", "memory": "1Gi"}
NAMED: dict[str, tuple[Object, dict[str, int]]] = {
    "limits": (group(limits=ONE), {"CPU": 1, "memory": GIB}),
    "requests alone": (group(requests={"cpu": "1500m", "memory": "1G"}), {"CPU": 2, "memory": 10**9}),
    "limits before requests": (group(limits={"cpu": "4"}, requests=ONE), {"CPU": 4, "memory": GIB}),
    "NVIDIA": (group(limits={**ONE, "nvidia.com/gpu": "2"}), {"CPU": 1, "GPU": 2, "memory": GIB}),
    "AMD": (group(limits={**ONE, "amd.com/gpu": "4"}), {"CPU": 1, "GPU": 4, "memory": GIB}),
    "shared by another vendor": (group(requests={"cpu": 1, "aliyun.com/gpu": 1}), {"CPU": 1, "GPU": 1}),
    "no GPU of one make": (group(limits={"cpu": 1, "amd.com/gpu": 0, "nvidia.com/gpu": 3}), {"CPU": 1, "GPU": 3}),
    "a part of a GPU": (group(limits={"cpu": 1, "nvidia.com/mig-1g.5gb": 2}), {"CPU": 1}),
    "TPU without selectors": (group(limits={"cpu": 8, "google.com/tpu": 4}), {"CPU": 8, "TPU": 4}),
    "TPU v4 in slices of 16 cores": (
        group(limits={"cpu": 8, "google.com/tpu": "4"}, nodes=slices("tpu-v4-podslice", "2x2x2"), numOfHosts=2),
        {"CPU": 8, "TPU": 4, "TPU-v4-16-head": 1},
    ),
    "TPU v6e has one core in a chip": (
        group(requests={"cpu": 8, "google.com/tpu": "8"}, nodes=slices("tpu-v6e-slice", "2x4")),
        {"CPU": 8, "TPU": 8, "TPU-v6e-8-head": 1},
    ),
    "TPU of a kind not known": (
        group(limits={"cpu": 8, "google.com/tpu": 4}, nodes=slices("tpu-v99", "2x4")),
        {"CPU": 8, "TPU": 4},
    ),
    "a topology that is none": (group(limits={"cpu": 8, "google.com/tpu": 4}, nodes=slices("tpu7x", "wide")), {}),
    "Neuron": (group(limits={"cpu": 8, "aws.amazon.com/neuroncore": 2}), {"CPU": 8}),
    "Neuron that is named": (
        group(limits={"cpu": 8}, rayStartParams={"resources": '"{\\"neuron_cores\\": 2}"'}),
        {"CPU": 8, "neuron_cores": 2},
    ),
    "rayStartParams": (
        group(
            limits=ONE, rayStartParams={"num-cpus": "3", "num-gpus": "1", "memory": "1000", "resources": "'{\"a\": 5}'"}
        ),
        {"CPU": 3, "GPU": 1, "a": 5, "memory": 1000},
    ),
    "resources of the group": (
        group(limits=ONE, resources={"CPU": "500m", "memory": "1Gi", "GPU": "2", "spot": "1500m", "TPU": "1"}),
        {"CPU": 1, "GPU": 2, "TPU": 1, "memory": GIB, "spot": 2},
    ),
    "resources before rayStartParams": (
        group(limits=ONE, resources={"a": "1"}, rayStartParams={"num-cpus": "7", "resources": '"{\\"b\\": 1}"'}),
        {"CPU": 7, "a": 1, "memory": GIB},
    ),
    "no CPU": (group(limits={"memory": "1Gi"}), {}),
    "nothing": (group(), {}),
    "half a CPU in rayStartParams": (group(limits=ONE, rayStartParams={"num-cpus": "0.5"}), {}),
    "JSON without its quotation marks": (group(limits=ONE, rayStartParams={"resources": '{"a": 1}'}), {}),
    "no CPU for work": (group(limits=ONE, rayStartParams={"num-cpus": "0"}), {"memory": GIB}),
}


def drawn(seed: int, count: int) -> list[Object]:
    """Groups by chance: each part said or not, in one way or another."""
    chance = random.Random(seed)
    quantities = ["0", "1", "2", "500m", "1500m", "1.5", "1e3", "8", "1Gi", "1Ki", "2M", "many"]
    custom = [None, '"{\\"a\\": 1}"', '"{\\"TPU\\": 4, \\"b\\": 2}"', '{"a": 1}', "'{\"x\": 3}'", '"{}"']
    kinds = ["tpu-v4-podslice", "tpu-v5-lite-podslice", "tpu-v5p-slice", "tpu-v6e-slice", "tpu7x", "tpu-v0"]

    def some(names: list[str], odds: float) -> Object:
        return {name: chance.choice(quantities[:-1]) for name in names if chance.random() < odds}

    found = []
    for _ in range(count):
        devices = ["nvidia.com/gpu", "amd.com/gpu", "google.com/tpu", "aws.amazon.com/neuroncore", "nvidia.com/mig-1g"]
        sizes = [some(["cpu", "memory"], 0.7) | some(devices, 0.25) for _ in range(2)]
        params = {
            name: chance.choice(["0", "1", "4", "x"][: 3 + (chance.random() < 0.1)])
            for name in ("num-cpus", "num-gpus", "memory")
            if chance.random() < 0.2
        }
        text = chance.choice(custom) if chance.random() < 0.3 else None
        more: Object = {"rayStartParams": params | ({"resources": text} if text else {})}
        if chance.random() < 0.3:
            more["resources"] = some(["CPU", "GPU", "TPU", "memory", "spot"], 0.4)
        nodes = (
            slices(chance.choice(kinds), chance.choice(["2x2", "2x2x4", "4x4", ""])) if chance.random() < 0.4 else None
        )
        found.append(group(limits=sizes[0], requests=sizes[1], nodes=nodes, **more))
    return found
