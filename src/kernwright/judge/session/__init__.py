"""Sessions: one worker with one row open, the shared memory of its slots, and the checks of what its calls leave."""
