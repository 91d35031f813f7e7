"""Runs a real Ray on this machine: head, drivers, raylets and autoscaler, in a network of their own.

`python -m kit.realray build` installs Ray once, into the cache of the tests and never into the environment of Muster;
`python -m kit.realray inside COMMAND` runs a command where there is nothing but loopback. `make test-ray` does both.
"""
