"""Numerics: inputs of calls, expected outputs, and the comparison of outputs under a contract.

Everything here runs in the judge. Seeds and expected values never enter a worker.
"""
