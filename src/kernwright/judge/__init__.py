"""The judge: a trusted side that owns seeds, inputs, clock and verdict; workers that are not trusted."""
