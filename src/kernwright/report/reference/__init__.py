"""Reference pages that are generated from the code and its data: the table of GPUs, the errors."""
