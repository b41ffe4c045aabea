"""Comparisons with milestone bars, with published campaigns and with times that were taken by hand."""
