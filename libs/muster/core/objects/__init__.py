"""From what the API server sends to facts: one reader per resource, only the declared fields, nothing judged."""
