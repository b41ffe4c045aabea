"""What a machine without a network needs to run Kernwright, gathered into one folder for PYTHONPATH."""
