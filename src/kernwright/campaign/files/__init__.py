"""The files of the agent's folder that are generated: card, reference, notes about the baseline, hints, iterations."""
