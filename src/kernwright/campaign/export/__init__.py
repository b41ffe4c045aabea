"""Exports of a campaign's best version into other projects, as patches with provenance."""
