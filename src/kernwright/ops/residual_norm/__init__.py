"""The norms behind a residual: a sum of rows, and its norm."""
