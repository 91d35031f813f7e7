"""The queue sorter: the order inside and between queues, and the candidates."""
