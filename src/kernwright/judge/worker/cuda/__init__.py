"""The part of a worker that needs a GPU: lent memory, graphs and the list of kernels that a call launches."""
