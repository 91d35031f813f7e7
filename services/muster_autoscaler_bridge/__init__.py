"""The autoscaler bridge: asks for the nodes that gangs lack."""
