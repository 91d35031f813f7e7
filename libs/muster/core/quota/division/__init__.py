"""Division: what there is, divided among queues by guarantee, weight, priority and past usage. Pure numbers."""
