"""Code that runs in the same process as foreign code: the worker program, the zygote that forks workers, loading and
calling a baseline or a candidate, confinement.

The judge starts these programs and believes nothing that they answer. It builds the native loops (`block_loop.c`,
`native_loop.cc`, `cuda/pool.cc`) but never runs a worker's code in its process.
"""
