"""Templates of candidates: a kernel for an op, generated from the op's definition, correct and ready to be tuned."""
