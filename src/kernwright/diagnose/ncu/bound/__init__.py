"""What bounds a kernel: the rules, and the counters that they rest on."""
