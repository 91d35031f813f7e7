"""Makes a detached actor that needs one CPU: `python detached_actor.py NAME`."""

import sys

import ray


@ray.remote(num_cpus=1)
class Actor:
    """It only lives."""


ray.init(namespace="default_namespace")
Actor.options(name=sys.argv[1], lifetime="detached").remote()
