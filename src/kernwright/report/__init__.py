"""Tables, plots and pages made from verdicts."""
