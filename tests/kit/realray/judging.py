"""Ray's own code as a judge: a program for the interpreter of Ray, which answers a list of questions at once.

It shares nothing with Muster: it reads JSON from its standard input and calls Ray.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

from kit.realray.venv import installed

OFFERS = """
import json, logging, sys
logging.disable(logging.CRITICAL)
from ray.autoscaler._private.kuberay.autoscaling_config import _get_ray_resources_from_group_spec as offers
def answer(group):
    try:
        return offers(group, False)
    except Exception as err:
        return repr(err)
print(json.dumps([answer(group) for group in json.load(sys.stdin)]))
"""


def asked(program: str, questions: list[Any], *, within_s: float = 300.0) -> list[Any]:
    """What Ray answers to each of the questions."""
    command = [str(installed() / "python3"), "-c", program]
    done = subprocess.run(
        command, input=json.dumps(questions), capture_output=True, text=True, timeout=within_s, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    answers: list[Any] = json.loads(done.stdout.splitlines()[-1])
    assert len(answers) == len(questions)
    return answers
