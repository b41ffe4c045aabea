"""Norm and activation in video decoders and encoders."""
