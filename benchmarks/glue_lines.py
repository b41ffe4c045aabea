"""Count the glue lines of the op families.

    python benchmarks/glue_lines.py

Glue is every line of a family that is neither a definition, nor kernel code, nor variant policy. By file:

- `family.py`: all lines (implementations, requirements, argument checks, outputs, libraries).
- `*host.cc`, `arguments.h`: all lines (the C++ list of parameters, how they are read, the exported functions).
- `*policy.h`, `problem.h`: the structs whose names end in Problem or Sum, that is the call as plain data.
- `cpu.cc`: the foreign functions at its end.
- `_shared/sums.py` and `_shared/native/sums.h`: all lines, since only broadcast_add uses them.

Not counted, as before the families had five files: `definition.py`, `triton.py`, `*.cu`, `*.cuh`, `exactness.py`,
`__init__.py`, and what several families share. Before, the count by file name (calls, implementations, arguments,
native, host, problem) was 3,727.
"""

from __future__ import annotations

import re
from pathlib import Path

OPS = Path(__file__).resolve().parents[1] / "src" / "kernwright" / "ops"
FAMILIES = ("norm_modulation", "modulation", "residual_norm", "plain_norm", "norm_tanh", "ernie", "ltx2_modulate")
CALL = re.compile(r"^struct \w*(?:Problem|Sum)\b.*?^\};\n", re.MULTILINE | re.DOTALL)


def glue(path: Path) -> int:
    """Return the glue lines of a file."""
    text = path.read_text(encoding="utf-8")
    if path.name in ("family.py", "arguments.h", "sums.py", "sums.h") or path.name.endswith("host.cc"):
        return text.count("\n")
    if path.name.endswith("policy.h") or path.name == "problem.h":
        return sum(found.count("\n") for found in CALL.findall(text))
    if path.name == "cpu.cc":
        return text[text.index("// The last argument") :].count("\n")
    return 0


def main() -> None:
    total = 0
    for family in FAMILIES:
        found = {path.name: glue(path) for path in sorted((OPS / family).iterdir()) if path.is_file()}
        own = {name: lines for name, lines in found.items() if lines}
        total += sum(own.values())
        print(f"{family:16} {sum(own.values()):5}  {', '.join(f'{name} {lines}' for name, lines in own.items())}")
    shared = {str(path.relative_to(OPS)): glue(path) for path in sorted(OPS.glob("_shared/**/sums.*"))}
    total += sum(shared.values())
    print(f"{'_shared':16} {sum(shared.values()):5}  {', '.join(f'{name} {lines}' for name, lines in shared.items())}")
    print(f"{'total':16} {total:5}")


if __name__ == "__main__":
    main()
