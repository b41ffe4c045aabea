"""Bundle: one folder for PYTHONPATH with everything that Kernwright needs on a machine without a network."""
