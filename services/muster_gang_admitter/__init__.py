"""The gang admitter: admits whole what is reserved."""
