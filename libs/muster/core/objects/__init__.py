"""Objects of the API server: shapes common to many readers, such as metadata, pod specs and GPU shares.

Nothing is decided here. Readers of resources, the kinds of workloads, the actuator and the presenter decode with these
shapes.
"""
