"""Every standing a job can have is reached by a scene, and no two scenes read the same.

The codes are a closed set: a new one without a scene fails here.
"""

from __future__ import annotations

import re
from functools import cache
from typing import get_args

import pytest

from kit import gangscenes
from kit.standings import SCENES
from muster.told.codes.codetable import REFUSED, JobCode
from muster.told.codes.values import GangCode
from muster.told.readmodel.gangsshown import ENDED
from muster.told.views.gangstory import gang_tale
from muster.told.views.narrator import Narrator
from muster.told.views.story import Story
from muster.told.wording.meanings import MEANINGS


def codes() -> set[str]:
    """Every code a job's status may have."""
    return set(get_args(JobCode))


GANG_STANDINGS = ("Waiting", "OtherScheduler", "KubeScheduler", "Gone", "Starting", "Bound", "Running", *ENDED)
"""What a gang of pods stands at when nothing holds it back."""


def gang_codes() -> set[str]:
    """Every code a gang of pods may stand at."""
    return set(get_args(GangCode))


def told_of_gang(play: gangscenes.Play, gang: str) -> tuple[str, str]:
    narrator = Narrator()
    for stored in play.bench.log:
        narrator.feed(stored)
    assert any(record.name == gang for record in narrator.state.gang_records.values()), (
        f"tests/kit/gangscenes.py: the scene of {gang} makes no gang: give its reason a case there"
    )
    found = gang_tale(narrator.state, gang)
    return found.code, found.text


@cache
def gang_scenes() -> dict[str, tuple[gangscenes.Play, str]]:
    free = {code: gangscenes.standing(code) for code in GANG_STANDINGS}
    return free | {name: scene() for name, scene in gangscenes.HELD.items()}


@cache
def told(name: str) -> tuple[str, str]:
    scene, job = SCENES[name]()
    story = Story(job)
    for stored in scene.bench.log:
        story.feed(stored)
    found = story.of(job, acting=name != "WouldBeAdmitted").standing
    return found.code, found.text


def test_every_code_has_a_scene() -> None:
    assert len(codes()) > 35
    missing = codes() - {name.partition(",")[0] for name in SCENES}
    assert not missing, f"tests/kit/standings.py (SCENES) has no scene for {missing}: add one there"


@pytest.mark.parametrize("name", SCENES)
def test_a_scene_leads_where_it_says(name: str) -> None:
    code, text = told(name)
    wanted = name.partition(",")[0]
    place = "tests/kit/scenes.py (refused)" if wanted in REFUSED.values() else "told/status/statuses.py and tests/kit"
    assert code == wanted, f"the scene {name} leads to {code} ({text}): see {place}"
    assert len(text) > 20


def test_every_standing_of_a_gang_has_a_scene_that_leads_there() -> None:
    found = {name: told_of_gang(*scene) for name, scene in gang_scenes().items()}
    assert gang_codes() - {code for code, _ in found.values()} == set()
    assert {name: code for name, (code, _) in found.items() if code != name.partition(",")[0]} == {}


def test_no_two_situations_read_the_same() -> None:
    said: dict[str, list[str]] = {}
    texts = {name: told(name)[1] for name in SCENES}
    texts |= {f"gang {name}": told_of_gang(*scene)[1] for name, scene in gang_scenes().items()}
    for name, text in texts.items():
        plain = re.sub(r"\b[a-z-]+/[a-z-]+(/[a-z-]+)*\b|\d+\S*", "…", text)
        said.setdefault(plain, []).append(name)
    assert {text: names for text, names in said.items() if len(names) > 1} == {}


BYPASS = re.compile(r"suspend\S* to false|unsuspend|(resume|start) it (your|by )|without the queue", re.IGNORECASE)


def test_nothing_that_is_said_advises_a_bypass_of_the_queue() -> None:
    """The way out of a wait is never to start the job by hand; what is said of one that was is another matter."""
    texts = [told(name)[1] for name in SCENES]
    texts += [text for meaning in MEANINGS.values() for text in (meaning.means, meaning.do)]
    assert len(texts) > 100
    assert [text for text in texts if BYPASS.search(text)] == []
    assert BYPASS.search("set spec.suspend to false and it starts")
