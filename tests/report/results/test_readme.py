"""The generated section of a README."""

from __future__ import annotations

from pathlib import Path

from made_results import MadeResults, metric

from kernwright.report.results.readme import BEGIN, END, readme_of, readme_text
from kernwright.tasks.policy import METRICS


def test_only_the_part_between_the_marks_is_replaced(tmp_path: Path) -> None:
    summary, readme = tmp_path / "docs" / "results.md", tmp_path / "README.md"
    assert readme_of(summary) is None, "there is no README"
    readme.write_text("# Title\n")
    assert readme_of(summary) is None, "it has no generated part"
    readme.write_text(f"# Title\n\n{BEGIN}\nold\n{END}\n\nThe end.\n")
    assert readme_of(summary) == readme
    made = MadeResults("fuse_scale_shift")
    rows = made.rows("scale_shift")
    for task, row in rows:
        made.add(task, row, "eager", metrics={name: metric(2.0, 20.0) for name in METRICS})
    made.add(*rows[0], "sglang@0.5.23", metrics={name: metric(0.5, 20.0) for name in METRICS})
    text = readme_text(readme, made.results, summary, "the command")
    assert text.startswith(f"# Title\n\n{BEGIN}\n") and text.endswith(f"{END}\n\nThe end.\n") and "old" not in text
    assert "](docs/results/summary.svg)" in text and "by `the command`" in text
    (line,) = (line for line in text.splitlines() if "(docs/results/fuse_scale_shift.md)" in line)
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[1:5] == ["`scale_shift`", str(len(rows)), "**0.50x** (1 rows)", "2.00x"]
    readme.write_text(text)
    assert readme_text(readme, made.results, summary, "the command") == text
