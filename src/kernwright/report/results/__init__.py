"""The results of the ops that ship, against every baseline on the frozen rows."""
