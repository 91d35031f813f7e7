"""What has been observed: the version of each object, and what of a workload is left in the cluster."""
