"""LTX-2: one norm, one or two modulations."""
