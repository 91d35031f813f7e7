"""The ledger, and its readers: shares, charges that run, workloads that still wait."""
