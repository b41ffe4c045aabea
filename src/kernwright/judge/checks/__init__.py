"""Checks without a clock: correctness of a contender before it is timed, verification of baselines, the sanitizer."""
