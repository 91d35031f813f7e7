"""The queue sorter: order inside and between queues, and who is tried now."""
