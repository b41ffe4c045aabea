"""Commands of `kernwright campaign`."""
