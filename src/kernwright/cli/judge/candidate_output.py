"""CandidateOutput: the output of a candidate's workers, for `--show-output`."""

from __future__ import annotations

from collections import Counter

from kernwright.core.plain_text import quoted

MOST_OUTPUTS = 8


class CandidateOutput:
    """Collects what each worker printed. Every round has new workers, which often print the same."""

    def __init__(self) -> None:
        self._workers: Counter[str] = Counter()  # the number of workers that printed each text, in the order of arrival

    def take(self, text: str) -> None:
        """Add the output of one worker."""
        self._workers[text.rstrip()] += 1

    def lines(self) -> list[str]:
        """Return the outputs as lines to print, each distinct one once. Without a worker there are none."""
        printed = {text: count for text, count in self._workers.items() if text}
        if not printed:
            return ["the candidate printed nothing"] if self._workers else []
        lines = []
        for text, count in list(printed.items())[:MOST_OUTPUTS]:
            lines.append(f"output of the candidate, in {count} of {self._workers.total()} workers:")
            lines += quoted(text)
        if len(printed) > MOST_OUTPUTS:
            lines.append(f"{len(printed) - MOST_OUTPUTS} further outputs are left out")
        return lines
