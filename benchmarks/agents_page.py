"""Write the tables of tools and resources in docs/agents.md, from the server's own list.

python benchmarks/agents_page.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio

from kernwright.mcp.server import build_server

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "agents.md"
BEGIN, END = "<!-- tools: begin -->\n", "<!-- tools: end -->\n"


def tables() -> str:
    """Return the tables as Markdown."""
    server = build_server([ROOT])

    async def listed() -> tuple[Any, Any]:
        return await server.list_tools(), await server.list_resource_templates()

    tools, resources = anyio.run(listed)
    lines = ["| tool | arguments | purpose |", "|---|---|---|"]
    for tool in tools:
        required = set(tool.input_schema.get("required", ()))
        names = [f"`{name}`" if name in required else f"[`{name}`]" for name in tool.input_schema["properties"]]
        lines.append(f"| `{tool.name}` | {', '.join(names)} | {_first_sentence(tool.description)} |")
    lines += ["", "| resource | content |", "|---|---|"]
    lines += [f"| `{each.uri_template}` | {_first_sentence(each.description)} |" for each in resources]
    return "\n".join(lines) + "\n"


def _first_sentence(description: str) -> str:
    return " ".join(description.split("\n\n")[0].split())


def with_tables(text: str) -> str:
    """Return the page with the present tables."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}{tables()}{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
