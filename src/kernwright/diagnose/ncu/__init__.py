"""Hardware counters of Nsight Compute: reading reports, what bounds a kernel, captures, pairs of reports."""
