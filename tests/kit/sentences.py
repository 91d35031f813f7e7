"""Sentences drawn from the recorded histories, in two languages, for a reader with fresh eyes.

    python -m kit.sentences --seed 7 --count 40 [--language zh-CN]

Drawn are kinds of sentences first, so that the frequent ones do not fill the page.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator

from kit.histories.files import names_in, read
from muster.events.envelope import Stored
from muster.languages import catalogue
from muster.model.language import say, speaking
from muster.serving.jobrows import ENDED
from muster.told.status.statuses import job_status
from muster.told.views.narrator import Narrator
from muster.told.wording import jobs


def told(log: list[Stored], every: int, language: str) -> Iterator[tuple[str, str]]:
    """(kind of sentence, sentence): entries of the narrator, and the standing of each job after every n-th commit."""
    narrator = Narrator()
    with speaking(catalogue(language)):
        for number, stored in enumerate(log):
            for entry in narrator.feed(stored):
                yield f"{entry.word}/{entry.what}", f"{entry.subject} | {say(entry.word)} | {entry.text}"
            if number % every == 0:
                state = narrator.state
                for uid in list(state.queues.workloads)[:5]:
                    status = job_status(state, uid)
                    yield f"status/{status.code}", f"{status.job} | {status.code} | {jobs.text(status, state.now)}"
                    if status.phase not in ENDED:  # A list shows no headline of these.
                        yield f"head/{status.code}", f"{status.job} | {status.code} | {jobs.headline(status)}"


def drawn(seed: int, count: int, language: str) -> list[str]:
    """The sentences, the same for every language but for their words."""
    chance = random.Random(seed)
    by_kind: dict[str, list[str]] = {}
    for name in chance.sample(names_in(), 40):
        for kind, sentence in told(read(name), 25, language):
            by_kind.setdefault(kind, []).append(f"[{name}] {sentence}")
    kinds = sorted(by_kind)
    return [chance.choice(by_kind[chance.choice(kinds)]) for _ in range(count)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--language", default="en")
    asked = parser.parse_args()
    print(*drawn(asked.seed, asked.count, asked.language), sep="\n")
