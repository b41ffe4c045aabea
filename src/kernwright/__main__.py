"""The command `kernwright`, also `python -m kernwright`."""

from __future__ import annotations

import importlib.util
import sys

# Packages of the extra `judge` without which no command starts.
NEEDED = ("jinja2", "markupsafe", "numpy", "rich", "typer")


def main() -> None:
    """Run the command line, or name the packages that it lacks and exit with status 2."""
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        sys.stderr.write(
            f"kernwright: the command line needs packages that are not installed: {', '.join(missing)}\n"
            "  remedy: pip install 'kernwright[judge]', or in a checkout: pip install '.[judge]'\n"
        )
        sys.exit(2)
    from kernwright.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
