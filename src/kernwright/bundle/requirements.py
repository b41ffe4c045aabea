"""Requirements of a bundle: the packages that a machine without a network lacks, with their versions."""

from __future__ import annotations

from kernwright.bundle.own_files import constraints
from kernwright.packages.pin import Pin, read_constraints, resolve_pins

# Every dependency of `kernwright[judge]`, direct and indirect, except those in EXPECTED.
CORE = (
    "annotated-doc", "annotated-types", "apache-tvm-ffi", "jinja2", "markdown-it-py", "markupsafe", "mdurl", "ninja",
    "nvidia-ml-py", "pydantic", "pydantic-core", "pygments", "rich", "shellingham", "typer", "typing-extensions",
    "typing-inspection",
)  # fmt: skip
TEST_TOOLS = ("hypothesis", "iniconfig", "packaging", "pluggy", "pytest", "sortedcontainers")
# What Optuna 5 imports to search in memory. Its storages in databases import sqlalchemy and alembic, which stay out.
TUNER = ("colorlog", "optuna", "packaging", "tqdm")
# Large packages built for one CUDA version. A GPU machine is expected to have them; `--with` bundles one anyway.
EXPECTED = ("torch", "triton", "numpy")


def known_pins() -> dict[str, Pin]:
    """Return the versions that the tests ran with: constraints.txt of the checkout, or its copy in the package."""
    path = constraints()
    return read_constraints(path.read_text(encoding="utf-8")) if path else {}


def choose_pins(
    with_tests: bool, more: list[str], with_campaign: bool = False
) -> tuple[tuple[Pin, ...], tuple[Pin, ...], tuple[Pin, ...]]:
    """Return the pins of the core, of the test tools and of further packages: those of the tuner and those in `more`.

    A version given in `more` for a core package or a test tool replaces the known version.
    """
    known = known_pins()
    asked = {pin.name: pin for pin in resolve_pins(more, known)}
    core = tuple(asked.pop(pin.name, pin) for pin in resolve_pins(CORE, known))
    tools = resolve_pins(TEST_TOOLS, known) if with_tests else []
    tests = tuple(asked.pop(pin.name, pin) for pin in tools)
    tuner = [asked.pop(pin.name, pin) for pin in resolve_pins(TUNER, known)] if with_campaign else []
    extra = {pin.name: pin for pin in tuner if pin not in tests}
    return core, tests, (*extra.values(), *asked.values())
