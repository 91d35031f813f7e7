"""The autoscaler bridge: takes part and has nothing to decide yet."""
