"""The verdicts of a ledger as scores, and the scoreboard that compares them."""
