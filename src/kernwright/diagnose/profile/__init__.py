"""Profile: where the GPU time of a recorded run goes, why the GPU is idle, and what may overlap."""
