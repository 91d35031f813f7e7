"""One adapter per kind: how it is suspended, what it needs, where it stands."""
