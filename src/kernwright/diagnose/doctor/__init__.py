"""The doctor: whether this machine can run, measure and profile a model, and what to do about each problem."""
