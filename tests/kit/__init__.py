"""Test kit: what the test suites share and the product never imports."""
