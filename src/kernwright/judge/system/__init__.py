"""Interfaces of the operating system: namespaces, users, seccomp, landlock, processors, /proc, signals, CUDA's driver.

Nothing here knows a task, a row or a verdict.
"""
