"""Nsight Systems: profiles that `nsys` recorded, read from its SQLite export."""
