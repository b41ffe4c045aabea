"""An NVIDIA GPU under the judge: sessions, contents drawn on the device, copies as a yardstick, state by NVML."""
