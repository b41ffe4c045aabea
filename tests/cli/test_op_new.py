"""kernwright op new: its files work as written and pass the project's own checks, and it writes all of them or none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from kernwright.cli.main import app
from kernwright.core.errors import KernwrightError
from kernwright.scaffold.checkout import Index
from kernwright.scaffold.family import LONGEST, Family

ROOT = Path(__file__).parents[2]
INDEX = "src/kernwright/ops/__init__.py"
BIN = Path(sys.executable).parent
LONG = ("an_op_" + "o" * LONGEST)[:LONGEST], ("z9_family_" + "f" * LONGEST)[:LONGEST]
BARE = shutil.ignore_patterns("__pycache__", "test_*.py", "*.pyc")


def new(root: Path, op: str = "gain_channels", family: str = "gains") -> Result:
    return CliRunner().invoke(app, ["op", "new", op, "--family", family, "--root", str(root)])


def content(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return the parts of a checkout that the command reads."""
    for folder in ("src/kernwright/ops", "tests/ops"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=BARE)
    return tmp_path


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, subprocess.CompletedProcess[str]]:
    """Run the checks of a contributor in a checkout with a new family, in parallel because they take seconds."""
    root = tmp_path_factory.mktemp("checkout")
    shutil.copytree(ROOT / "src", root / "src", ignore=BARE)
    shutil.copytree(ROOT / "tests" / "ops", root / "tests" / "ops", ignore=BARE)
    for file in ("pyproject.toml", "tests/conftest.py", "tests/interpreter_server.py"):
        shutil.copy(ROOT / file, root / file)
    assert new(root).exit_code == 0
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/ops/test_gains.py"]
    commands: dict[str, list[Any]] = {"tests": words}
    if (ROOT / ".mypy_cache").exists():
        shutil.copytree(ROOT / ".mypy_cache", root / ".mypy_cache")
        commands["types"] = [sys.executable, "-m", "mypy", "src/kernwright/ops"]
    environment = {**os.environ, "PYTHONPATH": str(root / "src")}
    environment.pop("KERNWRIGHT_TEST_CLAIMS", None)  # this pytest run is a suite of its own
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    running = {
        name: subprocess.Popen(command, cwd=root, env=environment, **pipes) for name, command in commands.items()
    }
    said = {name: process.communicate()[0] for name, process in running.items()}
    return {
        name: subprocess.CompletedProcess(process.args, process.returncode, said[name])
        for name, process in running.items()
    }


def test_the_generated_tests_pass(outcomes: dict[str, subprocess.CompletedProcess[str]]) -> None:
    done = outcomes["tests"]
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout.splitlines()[-1]


def test_the_generated_family_is_typed(outcomes: dict[str, subprocess.CompletedProcess[str]]) -> None:
    if "types" not in outcomes:
        pytest.skip("mypy has not run here yet, and takes a minute the first time: make typecheck")
    assert outcomes["types"].returncode == 0, outcomes["types"].stdout


@pytest.mark.parametrize(("op", "family"), [("o", "a"), ("gain_channels", "native_gains"), LONG])
def test_names_of_every_length_and_place_pass_the_linter(op: str, family: str, checkout: Path) -> None:
    """The names determine where lines break and how imports are sorted."""
    assert new(checkout, op, family).exit_code == 0
    (checkout / "pyproject.toml").symlink_to(ROOT / "pyproject.toml")
    for path in (ROOT / "src" / "kernwright").iterdir():  # The linter would sort a missing module as a third-party one.
        if path.name != "ops":
            (checkout / "src" / "kernwright" / path.name).symlink_to(path)
    for words in (["check"], ["format", "--check"]):
        command = [BIN / "ruff", *words, "--no-cache", "src", "tests"]
        done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_file_is_named_and_the_index_stays_sorted(checkout: Path) -> None:
    before = content(checkout)
    done = new(checkout)
    after = content(checkout)
    written = {line.split()[1] for line in done.output.splitlines() if line.startswith("wrote ")}
    assert written == {str(checkout / name) for name in after.keys() - before.keys()}
    assert {name for name in before if before[name] != after[name]} == {INDEX}
    assert done.output.count("\n  ") == 4 and "python -m pytest tests/ops/test_gains.py" in done.output
    index = Index(checkout / INDEX, after[INDEX].decode())
    assert list(index.families) == sorted(index.families) and index.families["gain_channels"] == "gains"
    added = after[INDEX].decode().splitlines()
    for line in before[INDEX].decode().splitlines():
        added.remove(line)
    assert added == ['    "gain_channels": "gains",']
    assert not any("$" in text.decode() for name, text in after.items() if "gains" in name)
    assert len(written) <= 8 and sum(after[name].count(b"\n") for name in after.keys() - before.keys()) <= 400


@pytest.mark.parametrize("op", ["a_first_op", "zz_last_op"])
def test_the_first_and_the_last_op_find_their_places(op: str) -> None:
    index = Index(ROOT / INDEX, (ROOT / INDEX).read_text())
    families = Index(ROOT / INDEX, index.with_family(Family(op, op.replace("op", "family")))).families
    assert list(families) == sorted({*index.families, op})


@pytest.mark.parametrize(
    ("op", "family", "said"),
    [
        ("Gain", "gains", "'Gain' cannot be the name of an op"),
        ("gain-channels", "gains", "'gain-channels' cannot be the name of an op"),
        ("lambda", "gains", "'lambda' cannot be the name of an op"),
        ("gain_channels", "../gains", "'../gains' cannot be the name of a family"),
        ("g" * (LONGEST + 1), "gains", f"is longer than {LONGEST} letters"),
        ("gains", "gains", "'gains' cannot be an op and its family"),
        ("check", "gains", "'check' is a name that the generated files use"),
        ("annotations", "gains", "'annotations' is a name that the generated files use"),
        ("scale_shift", "gains", "there is an op scale_shift already, in the family modulation"),
        ("gain_channels", "scale_shift", "there is an op scale_shift, which a family of that name would hide"),
        ("gain_channels", "modulation", "there is a family modulation already"),
        ("gain_channels", "tuned", "src/kernwright/ops/tuned exists already"),
        ("stubs", "gains", "src/kernwright/ops/stubs.py exists already"),
        ("gain_channels", "elsewhere", "tests/judge/test_elsewhere.py exists already"),
    ],
)
def test_a_refused_name_is_reported_and_nothing_is_written(op: str, family: str, said: str, checkout: Path) -> None:
    (checkout / "tests" / "judge").mkdir()
    (checkout / "tests" / "judge" / "test_elsewhere.py").touch()  # pytest would mistake one file for the other
    before = content(checkout)
    error = new(checkout, op, family).exception
    assert isinstance(error, KernwrightError)
    assert said in error.cause and error.remedy
    assert content(checkout) == before


def test_a_second_time_is_refused_and_the_first_family_kept(checkout: Path) -> None:
    assert new(checkout).exit_code == 0
    before = content(checkout)
    assert "there is a family gains already" in str(new(checkout, "gain_tokens").exception)
    assert content(checkout) == before


def test_a_folder_that_is_no_checkout_is_refused(tmp_path: Path) -> None:
    error = new(tmp_path).exception
    assert isinstance(error, KernwrightError) and "is no checkout of Kernwright" in error.cause
    assert "--root" in error.remedy and not list(tmp_path.iterdir())


def test_an_index_of_another_release_is_named(checkout: Path) -> None:
    (checkout / INDEX).write_text("OTHERS = {}\n")
    assert "FAMILIES: is not there" in str(new(checkout).exception)


@pytest.mark.parametrize("failure", [OSError("no space left"), KeyboardInterrupt()])
@pytest.mark.parametrize("good_moves", range(3))
def test_a_failure_at_any_move_leaves_nothing_behind(
    good_moves: int, failure: BaseException, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three moves: the family's folder, its test, the index."""
    before, moves = content(checkout), []

    def limited(move: Any) -> Any:
        def moved(source: Path, target: Path) -> Path:
            if len(moves) == good_moves:
                raise failure
            moves.append(target)
            return move(source, target)  # type: ignore[no-any-return]

        return moved

    for name in ("rename", "replace"):
        monkeypatch.setattr(Path, name, limited(getattr(Path, name)))
    error = new(checkout)
    assert error.exit_code != 0 and len(moves) == good_moves
    assert content(checkout) == before
    assert not list(checkout.glob(".kernwright*")) and not (checkout / "src/kernwright/ops/gains").exists()
