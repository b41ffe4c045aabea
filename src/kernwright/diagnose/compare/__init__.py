"""The comparison of runs: changes of their times and memory, with intervals that contain the noise."""
