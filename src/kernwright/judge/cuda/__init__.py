"""The judge on a GPU: memory that it lends to workers, contents and checks on the device, the device's own state."""
