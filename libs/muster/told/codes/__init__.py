"""Codes: closed codes for the statuses of jobs, pods and gangs, the values of codes, and the happenings of each job.

The read model and the statuses make these values; the wording makes sentences of the values.
"""
