"""A question without a cluster: the decisions of the real stages about the state in a file."""
