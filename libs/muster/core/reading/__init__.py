"""From objects of the API server to facts: a reader for each resource, the table of them, and the stage that asks."""
