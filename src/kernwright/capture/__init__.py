"""Record the calls of functions in a running program.

`describe`, `target`, `recorder`, `wrapper` and `hook` are injected into other programs, which may run Python 3.9 or
later without the dependencies of Kernwright. They use only the standard library, touch torch only if the program has
imported it, and import each other relatively, because they are loaded under another package name there. `capture`,
`program`, `folder` and `own_ops` run in Kernwright's process.
"""
