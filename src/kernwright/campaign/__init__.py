"""The loop of one task: hypothesis, edit, verdict, ledger, next step."""
