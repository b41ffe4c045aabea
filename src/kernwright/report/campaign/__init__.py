"""Pages and plots of a campaign: its trajectory, ideas next to outcomes, bottlenecks, and kept versions."""
