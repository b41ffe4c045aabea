"""Devices that the judge measures on. `device.Device` is the interface; `cpu` and `cuda` implement it."""
