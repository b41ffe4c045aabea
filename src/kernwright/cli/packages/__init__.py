"""Commands about packages: published baselines, and bundles for machines without a network."""
