"""Hardware counters of Nsight Compute: reports, bounds of a kernel, captures, and pairs of reports."""
