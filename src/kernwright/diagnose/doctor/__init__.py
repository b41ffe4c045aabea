"""The doctor: checks that this machine can run, measure and profile a model, with a remedy for each problem."""
