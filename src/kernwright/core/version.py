"""The version of Kernwright. Records, bundles and tuned configurations carry it."""

__version__ = "0.1.0"
