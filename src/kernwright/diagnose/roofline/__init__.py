"""What a GPU can do: the table of GPUs, occupancy, and the roofline."""
