"""What is asked of whoever adds nodes: decided by the autoscaler bridge."""
