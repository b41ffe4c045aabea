"""Commands that find the kernel of a model that is worth fixing."""
