"""ERNIE-Image: RMS norm and modulation as its compiled blocks run them."""
