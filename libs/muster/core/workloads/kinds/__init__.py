"""One adapter per kind: how it is suspended, its needs, its phase."""
