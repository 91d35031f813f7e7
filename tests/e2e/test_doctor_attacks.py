"""``muster doctor --attack`` on a real API server: as a tenant, where the guard holds and where it does not."""

from pathlib import Path

from kit import jobs
from kit.cli import Cli
from kit.controlplane import ControlPlane
from kit.guarded import ALICE, FREE, MANAGED, client


async def test_the_doctor_tries_to_pass_by_the_queue(plane: ControlPlane, tmp_path: Path) -> None:
    cli, admin = Cli(tmp_path), ("--kubeconfig", str(plane.kubeconfig))
    async with client(plane, ALICE) as alice, client(plane, plane.admin) as kube:
        made = await alice.create(jobs.pytorchjob("waits", MANAGED))
        runs = await alice.create(jobs.raycluster("runs", MANAGED))
        start = {"metadata": {"annotations": {"muster.dev/intent": "1-7-0"}}, "spec": {"suspend": False}}
        await kube.patch(runs["apiVersion"], "RayCluster", "runs", MANAGED, patch=start)
        try:
            held = await cli.run("doctor", *admin, "--attack", "--as", ALICE.name, "-n", MANAGED)
            free = await cli.run("doctor", *admin, "--attack", "--as", ALICE.name, "-n", FREE)
            stored = await kube.get(made["apiVersion"], "PyTorchJob", "waits", MANAGED)
        finally:
            await kube.delete(made["apiVersion"], "PyTorchJob", "waits", MANAGED)
            await kube.delete(runs["apiVersion"], "RayCluster", "runs", MANAGED)
    assert stored["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"], "dry runs store nothing"
    said = next(line for line in held.lines if "attempts of alice in namespace video" in line)
    assert said.startswith("  ok") and said.endswith("0 let through"), held.out
    assert "not judged" not in held.out, held.out
    assert "may start jobs without an admission: group muster:break-glass, Muster's own accounts, admin" in held.out, (
        held.out
    )
    assert free.code == 1
    assert "alice may create a Pod of no job in namespace other" in free.out, free.out
    refused = await cli.run("doctor", "--attack", *admin)
    assert refused.code == 2 and "go together" in refused.err


async def test_a_user_without_the_right_to_act_as_others_is_told_so(plane: ControlPlane, tmp_path: Path) -> None:
    mine = ("--kubeconfig", str(plane.kubeconfig_for(ALICE)))
    found = await Cli(tmp_path).run("doctor", *mine, "--attack", "--as", "bob", "-n", MANAGED)
    assert found.code == 1
    assert "impersonate" in found.out, found.out
