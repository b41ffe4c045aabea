"""Reports of Nsight Compute: reading .ncu-rep files and CSV exports."""
