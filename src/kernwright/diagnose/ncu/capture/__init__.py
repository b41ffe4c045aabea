"""Captures: running a row of a task, a preset or any program under Nsight Compute."""
