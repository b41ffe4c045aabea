"""Devices that the judge measures on. `device.Device` is the interface, which `cpu` and `cuda` implement."""
