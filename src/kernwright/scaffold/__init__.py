"""What a contributor would otherwise write by hand: templates, and how they enter a checkout whole or not at all."""
