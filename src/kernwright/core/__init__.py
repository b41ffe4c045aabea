"""What everything else may import: ops as torch functions, the registry, digests, rounding rules and errors.

Nothing in here imports another package of Kernwright.
"""
