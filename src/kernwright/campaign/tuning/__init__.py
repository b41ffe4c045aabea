"""Tuning: the search for the best configuration of a kernel, among those that a space declares."""
