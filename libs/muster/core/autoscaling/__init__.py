"""Autoscaling: the nodes to request, and the size of each self-scaling Ray cluster.

Stage ``AutoscalerBridge`` (``bridge.py``) decides requests for nodes, asks the accountant for growth, chooses workers
to release and raises alarms. The reader of Ray heads and the actuator use the state.
"""
