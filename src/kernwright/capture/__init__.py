"""Recording the real calls of functions in a running program.

`describe`, `target`, `recorder`, `wrap` and `hook` are injected into foreign programs, which may run another Python
(3.9 or later) without Kernwright's dependencies: they use the standard library alone, look at torch only where the
program has imported it, and import one another relatively, since there they are loaded under another package name.
`program`, `parts` and `own_ops` work on Kernwright's side.
"""
