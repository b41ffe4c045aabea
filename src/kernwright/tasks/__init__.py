"""Tasks: schemas and loading of frozen rows, tolerances, timing policies, candidates and baselines."""
