"""Numerics: inputs of calls, expected outputs, and the comparison of outputs under a contract.

Timed workers import nothing from here. Only the sanitizer's program does: it draws inputs of its own, and no verdict
follows from them. Seeds and expected values of a judgement never enter a worker.
"""
