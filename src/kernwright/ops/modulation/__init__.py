"""Modulation and gates without a norm: the elementwise ends of a block."""
