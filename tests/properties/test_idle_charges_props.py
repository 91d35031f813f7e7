"""Jobs whose pods are refused, whose controller is late, or whose finalizers hang: nothing charged stays idle for more
than ``muster.dev/start-timeout``. The judge reads reservations and releases in the log, and knows the pods by itself.
"""

from hypothesis import given, settings
from hypothesis import strategies as st

from kit import facts
from kit.depth import examples
from kit.scenes import Scene
from muster.events.base import Cause
from muster.events.decisions import GangAdmitted, QuotaReleased, QuotaReserved, SuspensionOrdered
from muster.events.effects import EffectApplied

STEP_S = 10
LIMIT_S = 60
REFUSED = -1
fates = st.lists(
    st.tuples(st.integers(REFUSED, 8), st.integers(0, 12), st.integers(0, 12)).map(
        lambda fate: {"pod": fate[0], "deleted": fate[1], "lost": fate[2]}
    ),
    min_size=2,
    max_size=4,
)
"""Of each job: after how many steps its controller makes a pod, or REFUSED; at which step the job is deleted, or 0; at
which step its pod is lost and every pod after it refused, or 0.
"""


class Neighbours(Scene):
    """The actuator and the controllers; finalizers of deleted jobs hang."""

    def __init__(self) -> None:
        super().__init__()
        self.tree_of(("video", 5), ("b", 3), start_timeout=f"{LIMIT_S}s", backoff="20s")
        self.lines("synced")
        self.pods: set[str] = set()
        self.clusters: set[str] = set()
        self.resumed_at: dict[str, int] = {}
        self.deleted: set[str] = set()
        self._read = 0

    def act(self) -> None:
        """The actuator carries out what was decided since the last time."""
        fresh, self._read = self.bench.log[self._read :], len(self.bench.log)
        for stored in fresh:
            for item, event in enumerate(stored.commit.events):
                name = event.ref.name if isinstance(event, GangAdmitted | SuspensionOrdered) else ""
                if not name or name in self.deleted:
                    continue
                if isinstance(event, GangAdmitted):
                    self.lines(f"resumed {name}")
                    self.resumed_at[name] = self.bench.now
                elif isinstance(event, SuspensionOrdered):
                    rv, job = facts.next_rv(), self.jobs[name]
                    cause = Cause(stored.seq, item)
                    done = EffectApplied(cause=cause, ref=job.ref, attempt=event.attempt, rv=rv, action="suspend")
                    self.bench.append("actuator", "input", [done])
                    self.change(name, rv=rv, suspended=True, phase="waiting", settled=True)
                    self.resumed_at.pop(name, None)
                    self.lines(*[f"cluster-gone {name}"] * (name in self.clusters))
                    self.clusters.discard(name)

    def charged(self) -> set[str]:
        """Names of the jobs with a reservation that was not released, by the log alone."""
        names: set[str] = set()
        for stored in self.bench.log:
            for event in stored.commit.events:
                if isinstance(event, QuotaReserved):
                    names.add(event.ref.name)
                elif isinstance(event, QuotaReleased):
                    names.discard(event.ref.name)
        return names


@given(fates)
@settings(max_examples=examples(40))
def test_nothing_charged_is_idle_for_longer_than_the_tree_says(jobs: list[dict[str, int]]) -> None:
    scene, idle_s = Neighbours(), dict[str, int]()
    fate = {f"j{number}": dict(each) for number, each in enumerate(jobs)}
    scene.lines(*(f"job {name} cpu=5" for name in fate))
    scene.act()
    for step in range(1, 25):
        for name, each in fate.items():
            since = scene.resumed_at.get(name)
            comes = since is not None and each["pod"] != REFUSED and name not in scene.pods | scene.deleted
            if comes and scene.bench.now - (since or 0) >= each["pod"] * STEP_S * 1000:
                scene.lines(f"cluster {name}", f"pod {name} 0 cpu=5")
                scene.pods.add(name)
                scene.clusters.add(name)
                idle_s[name] = 0
            if each["lost"] == step:
                each["pod"] = REFUSED
                if name in scene.pods:
                    scene.lines(f"pod-gone {name} 0")
                    scene.pods.discard(name)
            if each["deleted"] == step:
                scene.change(name, deleting=True)
                scene.deleted.add(name)
                scene.lines(*[f"pod-gone {name} 0"] * (name in scene.pods))
                scene.lines(*[f"cluster-gone {name}"] * (name in scene.clusters))
                scene.pods.discard(name)
                scene.clusters.discard(name)
        scene.lines(f"time +{STEP_S}s")
        scene.act()
        charged = scene.charged()
        for name in fate:
            idle_s[name] = idle_s.get(name, 0) + STEP_S if name in charged and name not in scene.pods else 0
            assert idle_s[name] <= LIMIT_S + STEP_S, (name, fate)
        assert not charged & scene.deleted, fate
    scene.bench.sound()
