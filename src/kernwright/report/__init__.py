"""Tables, plots and pages, all made from verdicts."""
