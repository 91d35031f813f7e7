"""``muster decide`` on tables in the manner of the field's integration tests: what users of KAI Scheduler expect."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from kit.tables import decided, expected


class Case(NamedTuple):
    title: str
    nodes: str
    queues: str
    jobs: str
    ends: str


CASES = [
    Case("a gang that fits starts, the next waits", "n1:4", "a D4", "g a 3x1\nh a 2x1", "g n1 n1 n1; h - -"),
    Case("a gang over two nodes", "n1:2 n2:2", "a D4", "g a 4x1", "g n1 n1 n2 n2"),
    Case("a gang of more than there is holds nothing back", "n1:2", "a D2", "g a 3x1\ns a 1", "g - - -; s n1"),
    Case("priority comes before age", "n1:2", "a D2", "old a 2\nnew a 2 p=build", "old -; new n1"),
    Case("within its quota first, though it came last", "n1:2", "a D0; b D2", "x a 2\ny b 2", "x -; y n1"),
    Case("over quota where nobody else asks", "n1:4", "a D1; b D3", "x a 4", "x n1"),
    Case(
        "two queues take turns",
        "n1:4",
        "a D0; b D0",
        "w a 1\nx a 1\ny a 1\nz b 1\nv b 1",
        "w n1; x n1; y -; z n1; v n1",
    ),
    Case(
        "weights two to one",
        "n1:6",
        "a W2; b W1",
        "\n".join(f"a{i} a 1\nb{i} b 1" for i in range(6)),
        "a0 n1; a1 n1; a2 n1; a3 n1; a4 -; a5 -; b0 n1; b1 n1; b2 -; b3 -; b4 -; b5 -",
    ),
    Case("a limit of a queue", "n1:8", "a D2 M3", "x a 2\ny a 2\nz a 1", "x n1; y -; z n1"),
    Case("a limit of a department", "n1:8", "d D2 M2; a D1 <d; b D1 <d", "x a 1\ny b 1\nz b 1", "x n1; y n1; z -"),
    Case("a limit of 0 lets nothing in", "n1:8", "a D2 M0", "x a 1", "x -"),
    Case("firm work stays within the quota", "n1:8", "a D2", "x a 2 p=build\ny a 1 p=build\nz a 1", "x n1; y -; z n1"),
    Case(
        "firm work stays within the department's quota",
        "n1:8",
        "d D1; a D2 <d",
        "x a 1 p=inference\ny a 1 p=build",
        "x n1; y -",
    ),
    Case("soft work does not count against firm", "n1:8", "a D2", "s a 3x1@n1\nx a 2 p=build", "s n1 n1 n1; x n1"),
    Case("quota -1 is all there is", "n1:8", "a D-1", "x a 8 p=build", "x n1"),
    # fractions
    Case("halves of one device", "n1:1", "a D1", "x a .5\ny a .5\nz a .5", "x n1; y n1; z -"),
    Case("0.6 and 0.5 take two devices", "n1:2", "a D2", "x a .6@n1 p=build\ny a .5 p=build", "x n1; y n1"),
    Case("0.6 and 0.5 are more than a quota of 1", "n1:2", "a D1", "x a .6@n1 p=build\ny a .5 p=build", "x n1; y -"),
    Case("a shared device is filled before another node", "n1:2 n2:2", "a D2", "x a .5@n2\ny a .5", "x n2; y n2"),
    Case("a whole one beside a half", "n1:2", "a D2", "x a .5@n1\ny a 1\nz a 1", "x n1; y n1; z -"),
    Case("half of two devices", "n1:2", "a D2", "x a .5*2\ny a .5*2\nz a .5", "x n1; y n1; z -"),
    Case("memory of a device", "n1:1:40000m", "a D1", "x a 30000m\ny a 20000m\nz a 10000m", "x n1; y -; z n1"),
    Case("more memory than a device has", "n1:1:40000m", "a D1", "x a 50000m", "x -"),
    Case("memory where no node says how much", "n1:1", "a D1", "x a 1000m", "x -"),
    Case("a gang of fractions over its limit", "n1:4", "d D1 M1; a D1 M1 <d", "g a 3x.5", "g - - -"),
    Case("a gang of halves and a whole", "n1:2", "a D2", "g a 2x.5 1", "g n1 n1 n1"),
    Case("half a device is reclaimed", "n1:1", "a D0 W0; b D1", "x a .5@n1\ny a .5@n1\nz b .5", "x n1; y -; z n1"),
    Case("both halves for a whole one", "n1:1", "a D0 W0; b D1", "x a .5@n1\ny a .5@n1\nz b 1", "x -; y -; z n1"),
    Case(
        "half of two devices is reclaimed",
        "n1:2",
        "a D0 W0; b D2",
        "x a .5*2@n1\ny a .5*2@n1\nz b .5*2",
        "x n1; y -; z n1",
    ),
    Case(
        "memory of a device is reclaimed",
        "n1:1:40000m",
        "a D0 W0; b D1",
        "x a 20000m@n1\ny a 20000m@n1\nz b 15000m",
        "x n1; y -; z n1",
    ),
    Case("priority takes a fraction back", "n1:1", "a D1", "x a .7@n1\ny a .6 p=build", "x -; y n1"),
    Case(
        "a fraction of another size on the same device",
        "n1:1",
        "a D1",
        "x a .25@n1\ny a .25@n1\nz a .5\nw a .01",
        "x n1; y n1; z n1; w -",
    ),
    Case(
        "three quarters do not fit beside a half", "n1:1 n2:1", "a D2", "x a .5@n1\ny a .75\nz a .5", "x n1; y n2; z n1"
    ),
    # reclaim
    Case(
        "the share by weight, and the smaller victim",
        "n1:4",
        "a D1 W3; b D2 W1",
        "a0 a 1@n1\na1 a .5@n1\nb0 b 2@n1\nb1 b .5@n1\na2 a .5",
        "a0 n1; a1 n1; a2 n1; b0 n1; b1 -",
    ),
    Case("two devices for one that is owed", "n1:2", "a D1; b D1", "x a 2@n1\ny b 1", "x -; y n1"),
    Case(
        "from the queue that is over its quota",
        "n1:2 n2:2",
        "a D2 W2; b D2 W2",
        "x a 1@n1\ny b 2@n2\nz b 1@n1\nw a 1",
        "x n1; y n2; z -; w n1",
    ),
    Case(
        "a larger one where no smaller will do",
        "n1:2 n2:2",
        "a D2 W2; b D2 W2",
        "x a 1@n2 at=1\ny a 2@n1 at=2\nz b 1@n2\nw b 1",
        "x n2; y -; z n2; w n1",
    ),
    Case(
        "nothing beyond what is deserved",
        "n1:2 n2:2",
        "a D2 W2; b D1 W1",
        "x a 1@n2\ny a 2@n1\nz b 1@n2\nw b 1",
        "x n2; y n1; z n2; w -",
    ),
    Case(
        "quotas of more than there is: exactly what is deserved",
        "n1:8",
        "a D6 W6; b D5 W5",
        "x a 8@n1\ny b 5",
        "x -; y n1",
    ),
    Case(
        "only the one that fits its share",
        "n1:4",
        "a D2 W2; b D2 W2",
        "x a 2@n1\ny a 1@n1\nz b 1@n1\nbig b 3\nsmall b 1\nmore a 1",
        "x n1; y -; z n1; big -; small n1; more -",
    ),
    Case(
        "who has no quota gives first",
        "n1:4",
        "a D1; b D1; c D0 W0",
        "x a 2@n1\ny a 1@n1\nz c 1@n1\nw b 1",
        "x n1; y n1; z -; w n1",
    ),
    Case(
        "a queue of higher priority gives last",
        "n1:4",
        "a D1; b D1; c D1 W1 P101",
        "x a 1@n1 at=1\ny a 1@n1 at=2\nz c 1@n1\nv c 1@n1\nw b 1",
        "x n1; y -; z n1; v n1; w n1",
    ),
    Case(
        "of two queues alike the one of lower priority gives, whatever their names",
        "n1:4",
        "a D1 W0 P101; b D1 W0; c D1 W0",
        "u a 1@n1 at=1\nv a 1@n1 at=9\nx b 1@n1 at=2\ny b 1@n1 at=3\nz c 1",
        "u n1; v n1; x n1; y -; z n1",
    ),
    Case(
        "the queue that is furthest above what it may keep gives first",
        "n1:6",
        "a D2 W0; b D1 W0; c D1 W0",
        "u a 3x1@n1 at=9 min=1\nx b 2@n1 at=1\ny b 1@n1 at=2\nz c 1",
        "u n1 n1 n1; x n1; y -; z n1",
    ),
    Case(
        "down to the fair share, no further",
        "n1:8",
        "a D1; b D1",
        "x a 1@n1\ny a 3@n1\nz a 4@n1\nv b 4\nw b 4",
        "x n1; y n1; z -; v n1; w -",
    ),
    Case(
        "the unit left over goes to the larger remainder",
        "n1:7",
        "a D2 W2; b D1 W1",
        "x a 4@n1\ny b 3@n1\nz a 1",
        "x n1; y -; z n1",
    ),
    Case(
        "between departments",
        "n1:2",
        "d D1; e D1; a D1 <d; b D1 <e",
        "x a 1@n1\ny a 1@n1 p=build\nz b 1",
        "x -; y n1; z n1",
    ),
    Case(
        "firm work reclaims too",
        "n1:2",
        "d D1; e D1; a D1 <d; b D1 <e",
        "x a 1@n1\ny a 1@n1 p=build\nz b 1 p=build",
        "x -; y n1; z n1",
    ),
    Case(
        "not beyond the department's quota",
        "n1:4",
        "d D2; e D2; a D1 <d; b D1 <e; c D1 <e",
        "x a 3@n1\ny b 1@n1 p=build\nz b 2",
        "x n1; y n1; z -",
    ),
    Case(
        "a fit is taken before a reclaim",
        "n1:8",
        "d D1; e D1; a D1 <d; b D1 <e",
        "x a 4@n1\ny a 1@n1\nz b 4",
        "x n1; y -; z n1",
    ),
    Case(
        "a queue of higher priority gets the surplus",
        "n1:8",
        "d D1; a D1 W2 <d; b D1 W1 <d; c D0 W1 P101 <d",
        "\n".join([*(f"a{i} a 1@n1" for i in range(5)), *(f"b{i} b 1@n1" for i in range(3)), "r c 3"]),
        "a0 n1; a1 n1; a2 n1; a3 -; a4 -; b0 n1; b1 n1; b2 -; r n1",
    ),
    Case(
        "from the same department and from another",
        "n1:4",
        "d D0; e D4; a D1 <d; b D0 W0 <e; c D4 W4 <e",
        "x a 2@n1\ny b 2@n1\nz c 4",
        "x -; y -; z n1",
    ),
    Case(
        "the second in the queue reclaims where the first cannot",
        "n1:2",
        "a D0 W0; b D1",
        "x a 2@n1\ny b 2 p=build\nz b 1 p=build",
        "x -; y -; z n1",
    ),
    Case(
        "one round of whole devices",
        "n1:8",
        "a D4 W4; b D2 W2",
        "x a 5@n1\ny a 1@n1\nz a 1@n1\nw b 3",
        "x n1; y -; z -; w n1",
    ),
    Case(
        "a big quota that asks for little",
        "n1:9",
        "a D4 W4; b D4 W4; c D10 W10",
        "x a 5@n1\ny a 2@n1\nz a 1@n1\nv c 1\nw b 3",
        "x n1; y -; z -; v n1; w n1",
    ),
    Case("a share that rounds down", "n1:4", "a D2 W2; b D1 W1", "x a 3@n1\ny b 2", "x n1; y -"),
    Case(
        "in a department that got its own",
        "n1:3 n2:3",
        "d D3 W0; e D3 W0; a D3 W0 <d; b D2 W0 <e; c D1 W0 <e",
        "x a 2@n1\ny a 1@n2 p=build\nz b 2@n2 at=1\nv b 1@n1 at=2\nw c 1",
        "x n1; y n2; z n2; v -; w n1",
    ),
    Case(
        "everybody over quota and within the fair share",
        "n1:3 n2:3",
        "d D1; e D1; a D1 <d; b D1 <e",
        "x a 2@n1\ny a 1@n2 p=build\nz b 2@n2\nv b 1@n1\nw b 1",
        "x n1; y n2; z n2; v n1; w -",
    ),
    Case(
        "department within quota",
        "n1:1 n2:1",
        "d D2; e D2; a D1 W0 <d; b D1 W0 <e",
        "x a 1@n1\ny b 1@n2 p=build\nz b 1",
        "x n1; y n2; z -",
    ),
    # cpu
    Case(
        "cpu of a queue that deserves none",
        "n1:1:4c",
        "a Dgpu:0 Dcpu:0 Wgpu:0 Wcpu:0; b Dgpu:1 Dcpu:-1",
        "x a 0+2c@n1\ny a 0+2c@n1\nz b 0+2c\nw b 0+2c",
        "x -; y -; z n1; w n1",
    ),
    Case(
        "cpu that no queue names is not reclaimed",
        "n1:1:4c",
        "a D0 W0; b D1",
        "x a 0+2c@n1\ny a 0+2c@n1\nz b 0+2c\nw b 0+2c",
        "x n1; y n1; z -; w -",
    ),
    # elastic
    Case("all that fits of an elastic job", "n1:2", "a D1", "x a 3x1 min=1", "x n1 n1 -"),
    Case(
        "the minimum of the second before the third pod of the first",
        "n1:5",
        "a D5",
        "x a 4x1 min=1\ny a 4x1 min=1",
        "x n1 n1 n1 -; y n1 n1 - -",
    ),
    Case("a member above the minimum is reclaimed", "n1:2", "a D1; b D1", "x a 2x1@n1 min=1\ny b 1", "x n1 -; y n1"),
    Case("two members above the minimum", "n1:4", "a D1; b D1", "x a 4x1@n1 min=1\ny b 2", "x n1 n1 - -; y n1"),
    Case(
        "an elastic claimant takes what is owed and no more",
        "n1:2",
        "a D1 W0; b D1 W0",
        "x a 2x1@n1 min=1\ny b 3x1 min=1",
        "x n1 -; y n1 - -",
    ),
    Case("all of an elastic job", "n1:2", "a D0 W0; b D2", "x a 2x1@n1 min=1\ny b 2", "x - -; y n1"),
    Case(
        "a small job and a member above the minimum",
        "n1:3",
        "a D0 W0; b D3",
        "x a 2x1@n1 min=1 at=1\nz a 1@n1 at=2\ny b 2",
        "x n1 -; z -; y n1",
    ),
    Case(
        "one member of each of two",
        "n1:4",
        "a D4",
        "x a 2x1@n1 min=1\ny a 2x1@n1 min=1\nz a 2 p=inference",
        "x n1 -; y n1 -; z n1",
    ),
    Case("priority takes one member", "n1:2", "a D2", "x a 2x1@n1 min=1\ny a 1 p=inference", "x n1 -; y n1"),
    Case("priority takes an elastic job whole", "n1:2", "a D4", "x a 2x1@n1 min=1\ny a 2 p=inference", "x - -; y n1"),
    Case(
        "an elastic claimant grows to its quota",
        "n1:3",
        "a D1 W0; b D2 W1",
        "x a 2x1@n1 min=1\ny b 3x1 min=1",
        "x n1 -; y n1 n1 -",
    ),
    # preempt
    Case("priority in a queue", "n1:2", "a D2", "x a 2@n1\ny a 2 p=build", "x -; y n1"),
    Case(
        "the youngest of the lowest",
        "n1:3",
        "a D3",
        "x a 1@n1 at=1\ny a 1@n1 at=2\nz a 1@n1 at=3\nw a 1 p=build",
        "x n1; y n1; z -; w n1",
    ),
    Case("equal priority does not preempt", "n1:1", "a D1", "x a 1@n1 p=75\ny a 1 p=75", "x n1; y -"),
    Case("a label makes work firm, whatever its priority", "n1:1", "a D1", "x a 1@n1 firm=1\ny a 1 p=90", "x n1; y -"),
    Case("and soft", "n1:1", "a D1", "x a 1@n1 p=build firm=0\ny a 1 p=inference", "x -; y n1"),
    Case("firm work is not preempted", "n1:1", "a D1", "x a 1@n1 p=build\ny a 1 p=inference", "x n1; y -"),
    Case(
        "not beyond the quota for firm work",
        "n1:2",
        "a D1",
        "x a 1@n1 p=build\ny a 1@n1\nz a 1 p=inference",
        "x n1; y n1; z -",
    ),
    Case(
        "soft work of a higher priority preempts beyond quota", "n1:2", "a D0", "x a 2x1@n1\ny a 1 p=75", "x - -; y n1"
    ),
    Case("a gang preempts a gang", "n1:2 n2:2", "a D4", "g a 2@n1 2@n2\nh a 2x2 p=build", "g - -; h n1 n2"),
    Case("a gang is preempted whole for one", "n1:2 n2:2", "a D4", "g a 2@n1 2@n2\nh a 1 p=build", "g - -; h n1"),
    Case("no more than needed", "n1:4", "a D4", "x a 1@n1\ny a 2@n1\nz a 1@n1\nw a 2 p=build", "x n1; y -; z n1; w n1"),
    Case("a queue of higher priority is served first", "n1:2", "a D0; b D0 P200", "x a 2\ny b 2", "x -; y n1"),
    Case("a quota comes before the priority of a queue", "n1:2", "a D2; b D0 P200", "x a 2\ny b 2", "x n1; y -"),
    # subgroups
    Case("each subgroup at its minimum", "n1:3", "a D3", "g a 1x1/h 3x1/w sub=h:1,w:2", "g n1 n1 n1 -"),
    Case("a subgroup that cannot start holds all", "n1:2", "a D2", "g a 1x1/h 3x1/w sub=h:1,w:2", "g - - - -"),
    Case(
        "members above a subgroup's minimum leave first",
        "n1:4",
        "a D4",
        "g a 1/h@n1 3x1/w@n1 sub=h:1,w:1\nx a 2 p=build",
        "g n1 n1 - -; x n1",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[each.title for each in CASES])
def test_a_state_ends_as_the_table_says(case: Case) -> None:
    assert decided(case.nodes, case.queues, case.jobs) == expected(case.ends)
