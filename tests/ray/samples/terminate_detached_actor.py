"""Ends a detached actor: `python terminate_detached_actor.py NAME`."""

import sys

import ray

ray.init(namespace="default_namespace")
ray.kill(ray.get_actor(sys.argv[1]))
