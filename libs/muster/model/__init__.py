"""Values the deciders work on: resource vectors, quota trees, workloads. No behaviour beyond arithmetic."""
