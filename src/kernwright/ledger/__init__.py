"""The ledger: append-only, hash-chained records of verdicts and the raw samples that they rest on.

This package stores, verifies and transfers records. It knows nothing of their content: the judge writes verdicts
(``judge.record``), and ``report`` reads them.
"""
