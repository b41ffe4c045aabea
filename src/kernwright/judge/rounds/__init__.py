"""The rounds of a judgement: block sizes, timed quads, protocol overhead, and the state of every row and pair."""
