"""Quota: trees and their rules, the ledger, and the accountant, which alone decides on it."""
