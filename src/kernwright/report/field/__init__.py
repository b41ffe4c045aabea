"""The state of the field: how baselines that people run stand on the frozen rows."""
