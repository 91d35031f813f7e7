"""Generators of pages, schemas and manifests, run by `make schemas`; the wheel does not ship them."""
