"""From objects of the API server to facts: one reader for each resource, and the table of all of them."""
