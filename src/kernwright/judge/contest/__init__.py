"""Contestants, pairs and the lineup of a judgement, and the workers that run them."""
