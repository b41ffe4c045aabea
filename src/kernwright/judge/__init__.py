"""The judge: a trusted side that owns seeds, inputs, expected values, clock and verdict, and workers it does not trust."""
