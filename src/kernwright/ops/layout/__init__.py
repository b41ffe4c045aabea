"""Data movement alone: concatenations, copies, padding."""
