"""Job traces through the scheduler in virtual time: readers, the real stages, comparison policies, metrics."""
