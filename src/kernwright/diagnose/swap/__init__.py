"""Runs of a program with some of its functions replaced.

`follower` is loaded by every Python process of the program and imports nothing heavy. `replaced_function`, `binding`,
`candidate_function`, `output_check` and `argument_copies` are imported there with the first call of a replaced
function. `swap`, `swap_report` and `swapped_run` run in Kernwright's process.

The replacement runs in the program's own process, so nothing here is a verdict. Verdicts come from the judge.
"""
