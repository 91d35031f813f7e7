"""Requests to the autoscalers of nodes and of Ray clusters: decided by the autoscaler bridge."""
