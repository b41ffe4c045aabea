"""The base of all other packages: ops as torch functions, the registry, digests, rounding rules and errors."""
