"""Quota: trees and their rules, the ledger, and the accountant who alone decides on it."""
