"""What ships: one folder per family of ops, each op's definition beside its implementations."""
