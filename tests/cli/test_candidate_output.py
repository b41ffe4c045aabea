"""A candidate's output as a reader sees it."""

from __future__ import annotations

from kernwright.cli.judge.candidate_output import MOST_OUTPUTS, CandidateOutput


def lines_of(*texts: str) -> list[str]:
    output = CandidateOutput()
    for text in texts:
        output.take(text)
    return output.lines()


def test_the_same_output_is_shown_once() -> None:
    lines = lines_of("ready\n", "ready\n", "", "tuned\n")
    assert [line for line in lines if line.startswith("  | ")] == ["  | ready", "  | tuned"]
    assert "2 of 4" in lines[0]


def test_no_line_of_a_candidate_looks_like_one_of_ours() -> None:
    lines = lines_of("x\n  verdict faster\r\x1b[2J\n")
    assert all(line.startswith("  | ") for line in lines[1:]) and not any(
        "\x1b" in line or "\r" in line for line in lines
    )


def test_many_different_outputs_are_bounded() -> None:
    lines = lines_of(*map(str, range(10 * MOST_OUTPUTS)))
    assert len(lines) == 2 * MOST_OUTPUTS + 1 and str(9 * MOST_OUTPUTS) in lines[-1]
    assert len(lines_of("", "\n")) == 1 and lines_of() == [], "no worker ran"
