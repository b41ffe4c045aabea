"""Commands that read evidence: ledgers, reports and the pages of results."""
