"""The comparison of runs: what became faster or slower, by how much, and whether that is more than noise."""
