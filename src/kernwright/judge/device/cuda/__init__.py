"""An NVIDIA GPU as a device of the judge: sessions, contents drawn on the device, timed copies, state from NVML."""
