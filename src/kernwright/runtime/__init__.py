"""How an implementation of an op is chosen, built and launched."""
