"""What is asked of what adds nodes: decided by the autoscaler bridge."""
