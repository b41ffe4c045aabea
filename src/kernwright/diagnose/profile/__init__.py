"""Profile: the GPU time of a recorded run, causes of idle time, and opportunities for overlap."""
