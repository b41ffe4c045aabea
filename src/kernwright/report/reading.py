"""Reading: the explanations of rows, ratios, times and shares that the generated pages have in common."""

from __future__ import annotations

ROW = """\
- A **row** is one call with frozen shapes, dtypes and strides. Production rows come from real models."""
TIMES = """\
- **device** is the time of the kernels alone (a replayed CUDA graph, cold caches), **stream** is calls back to back,
  **wall** is one call and the wait until it has finished. `stream` and `wall` include Python and dispatch."""
COPY = """\
- **Copy** is the time of a plain copy of the fewest bytes that the call must move, divided by the kernels' time. It is
  a reference, not a limit: a kernel that reads more than it writes may exceed 100 %. Small rows have low shares,
  because the launch dominates. The summary has the median over the rows."""
VARIANTS = """\
The table has geometric means over the rows of one op. Calls of one op move different amounts of memory if their dtypes
differ, or if an input has a value for every element in some calls and is smaller in others. Each such variant has its
own line, which names these inputs."""


def ratios(numerator: str, denominator: str, subject: str) -> str:
    """Return the explanation of a ratio of two times."""
    return (
        f"- A **ratio** is {numerator} divided by {denominator}. Above 1, {subject} is faster.\n"
        f"  A ratio under 1 is bold: {subject} is slower."
    )


def declined(subject: str) -> str:
    """Return the explanation of rows that one side does not run."""
    return f"- **Declined**: {subject} has no kernel for the row. Such a row has no time."


def short_reading(numerator: str, denominator: str, subject: str, decliner: str) -> str:
    """Return the explanation at the top of a family's page."""
    return (
        f"A ratio is {numerator} divided by {denominator}: above 1, {subject} is faster. A ratio under 1 is bold.\n"
        "Times are in microseconds: `device` is the kernels alone, `stream` is calls back to back, `wall` is one call\n"
        "and the wait until it has finished. *Copy* is the time of a copy of the same bytes divided by the time of\n"
        f"the kernels. *Declined*: {decliner} has no kernel for the row."
    )
