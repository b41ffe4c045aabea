"""The public call of an op: the generated function, its fast and slow path, and the op that torch.compile sees."""
