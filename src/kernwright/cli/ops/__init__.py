"""Commands about ops: build them, explain a choice, start a new one, tune their kernels."""
