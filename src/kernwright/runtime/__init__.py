"""The choice, the build and the launch of an implementation of an op."""
