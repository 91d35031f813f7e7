"""Kinds of workloads: one file each in ``kinds``, one row each in ``registry``."""
