"""Diagnosis: from a slow model to the one kernel worth fixing."""
