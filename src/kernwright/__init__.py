"""Kernwright proves faster kernels: frozen tasks, a judge that cannot be fooled, evidence anyone can check."""

__version__ = "0.1.0"
