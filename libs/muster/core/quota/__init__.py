"""Quota: trees and their rules, the ledger, claims, and the accountant.

Stage ``QuotaAccountant`` (``accountant.py``) alone reserves, denies, adopts and releases quota, and orders evictions.
The sorter and the preemptor fold copies of the ledger to foresee the answers.
"""
