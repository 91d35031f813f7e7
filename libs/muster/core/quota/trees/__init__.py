"""Quota APIs compiled to trees of one model, with the rules by which each is applied."""
