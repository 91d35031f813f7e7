"""The ledger, and what is read from it: shares, charges that run, who still waits."""
