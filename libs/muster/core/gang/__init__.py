"""Gangs: a workload starts whole or holds nothing."""
