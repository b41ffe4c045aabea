"""Reading: the explanations of rows, ratios, times and shares that the generated pages have in common."""

from __future__ import annotations

ROW = """\
- A **row** is one call with frozen shapes, dtypes and strides. Production rows come from real models."""
TIMES = """\
- **device** is the time of the kernels alone (a replayed CUDA graph, caches cold), **stream** is calls back to back,
  **wall** is one call and a wait for its end. `stream` and `wall` include Python and dispatch."""
COPY = """\
- **Copy** is the time of a plain copy of the fewest bytes that the call must move, divided by the kernels' time. It is
  a yardstick and not a limit: a kernel that reads more than it writes may exceed 100 %. Small rows have low shares,
  because the launch dominates. The summary has the median over the rows."""
VARIANTS = """\
The table has geometric means over the rows of one op. Calls of one op differ in memory traffic when other inputs have a
value for every element, or have other dtypes. Each such variant has its own line, which names these inputs."""


def ratios(numerator: str, denominator: str, subject: str) -> str:
    """Return the explanation of a ratio of two times."""
    return (
        f"- A **ratio** is {numerator} divided by {denominator}. Above 1 {subject} is faster.\n"
        f"  A ratio under 1 is bold: {subject} is slower."
    )


def declined(subject: str) -> str:
    """Return the explanation of rows that one side does not run."""
    return f"- **Declined**: {subject} has no kernel for the row. Such a row has no time."


def short_reading(numerator: str, denominator: str, subject: str, decliner: str) -> str:
    """Return the explanation at the top of a family's page."""
    return (
        f"A ratio is {numerator} divided by {denominator}: above 1 {subject} is faster. A ratio under 1 is bold.\n"
        "Times are microseconds: `device` is the kernels alone, `stream` is calls back to back, `wall` is one call\n"
        "and a wait for its end. *Copy* is the time of a copy of the same bytes divided by the kernels' time.\n"
        f"*Declined*: {decliner} has no kernel for the row."
    )
