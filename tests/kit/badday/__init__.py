"""A bad day in production: an installation as it is shipped, what goes wrong on it, and a judge that believes nobody.

`day` plays it; `nats`, `cluster`, `installed` and `supervisor` are the installation; `load` and `player` the users and
the kubelets; `faults` what goes wrong. The judge is `verdict` with `quota`, `stream` and `feed`: these import nothing
of Muster, and read API objects and bytes of streams alone.
"""
