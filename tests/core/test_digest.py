"""A digest follows code. Prose, formatting, names of files and their places do not change it."""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import kernwright
from kernwright.baselines import published, shipped
from kernwright.baselines.lookup import find_baseline
from kernwright.baselines.published import PublishedBaseline
from kernwright.baselines.shipped import Shipped
from kernwright.core.digest import C_SUFFIXES, Source, code_digest
from kernwright.core.errors import KernwrightError
from kernwright.core.op import Op
from kernwright.core.registry import ops_from_file
from kernwright.judge.record.provenance import judge_digest
from kernwright.tasks.catalog import find_task

PACKAGE = Path(kernwright.__file__).parent


def reword(path: Path) -> None:
    """Lay a file out anew with other docstrings and comments. Its code stays."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        tree = ast.parse(text)
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
                node.body[0] = ast.Expr(ast.Constant("Other words."))
        path.write_text(f"# A new comment.\n{ast.unparse(tree)}\n")
    elif path.suffix in C_SUFFIXES:
        lines = [
            line if line.lstrip().startswith("#") or line.endswith("\\") else f"  {line}" for line in text.splitlines()
        ]
        path.write_text("/* A new\n comment. */\n" + "\n".join(lines) + "\n")


def reword_all(folder: Path) -> None:
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        reword(path)


def rename_module(package: Path, old: str, new: str) -> None:
    """Move a module and rewrite its imports, as a refactoring would."""
    target = package.parent.joinpath(*new.split(".")).with_suffix(".py")
    target.parent.mkdir(parents=True, exist_ok=True)
    package.parent.joinpath(*old.split(".")).with_suffix(".py").rename(target)
    for path in package.rglob("*.py"):
        path.write_text(re.sub(rf"\b{re.escape(old)}\b", new, path.read_text(encoding="utf-8")), encoding="utf-8")


def change(path: Path) -> None:
    added = "more = 1" if path.suffix == ".py" else "int more;"
    path.write_text(f"{path.read_text(encoding='utf-8')}\n{added}\n", encoding="utf-8")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the package that a test may change."""
    copy = tmp_path / "kernwright"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(shipped, "PACKAGE", copy)
    return copy


def judge_of(package: Path) -> str:
    judge_digest.cache_clear()
    return judge_digest(package / "judge")


def test_the_judges_digest_stays_when_modules_move_and_words_change(package: Path) -> None:
    before = judge_of(package)
    module = next(path for path in sorted((package / "judge").rglob("*.py")) if path.stem == "statistics")
    name = ".".join(module.relative_to(package.parent).with_suffix("").parts)
    rename_module(package, name, "kernwright.judge.elsewhere.intervals")
    reword_all(package / "judge")
    assert judge_of(package) == before
    change(package / "judge" / "elsewhere" / "intervals.py")
    assert judge_of(package) != before


def test_a_shipped_familys_digest_stays_when_modules_move_and_words_change(package: Path) -> None:
    def digest() -> str:
        return Shipped(("norm_scale_shift",)).digest

    before = digest()
    rename_module(package, "kernwright.runtime.dispatch", "kernwright.runtime.elsewhere")
    (package / "ops" / "norm_modulation" / "held.cuh").rename(package / "ops" / "norm_modulation" / "renamed.cuh")
    for path in (package / "ops").rglob("*.c*"):
        path.write_text(path.read_text().replace('"held.cuh"', '"renamed.cuh"'))
    for part in shipped.RUN_BY_CALLS:
        reword_all(package / part)
    assert digest() == before
    change(package / "ops" / "norm_modulation" / "renamed.cuh")
    assert digest() != before


def test_an_adapters_digest_stays_when_words_change(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def digest() -> str:
        return PublishedBaseline.find("sglang@0.5.23").adapter_digest(["rotary"])

    real = Source.read
    place = Path(published.__file__).parent
    copies = {place / path.relative_to(package / "baselines"): path for path in (package / "baselines").rglob("*.py")}
    before = digest()
    monkeypatch.setattr(Source, "read", lambda path: real(copies[path]))
    assert digest() == before
    reword_all(package / "baselines")
    moved = package / "baselines" / "deeper" / "rotary_adapters.py"
    moved.parent.mkdir()
    rotary = place / "sglang" / "rotary.py"
    copies[rotary] = copies[rotary].rename(moved)
    assert digest() == before
    change(moved)
    assert digest() != before


def test_a_tasks_own_adapter_is_its_code(tmp_path: Path) -> None:
    folder = tmp_path / "task"
    shutil.copytree(find_task("norm_infer").folder, folder)
    adapters = folder / "baselines.py"

    def digest(text: str) -> str:
        adapters.write_text(text)
        return find_baseline(find_task(str(folder)), "mine").digest

    before = digest("def mine(op):\n    return None\n")
    assert digest('"""Words."""\n\n\ndef mine( op ):  # why\n    """More words."""\n    return None\n') == before
    assert digest("def mine(op):\n    return op\n") != before


DEFINITIONS = '''
from torch import Tensor
from kernwright.core.op import define
from kernwright.core.rounding import wide

FACTOR = 2

def helper(x: Tensor) -> Tensor:
    """Words."""
    return wide(x) * FACTOR

@define(outputs=["y"], activations=["x"])
def twice(x: Tensor) -> Tensor:
    """Twice x."""
    return helper(x).to(x.dtype)
'''


def op_in(path: Path, text: str) -> Op:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return ops_from_file(path)["twice"]


def test_an_ops_digest_stays_when_its_file_moves_and_words_change(tmp_path: Path) -> None:
    before = op_in(tmp_path / "a" / "definitions.py", DEFINITIONS).digest
    other = tmp_path / "b" / "elsewhere.py"
    assert op_in(other, DEFINITIONS).digest == before
    reword(other)
    assert ops_from_file(other)["twice"].digest == before
    more = DEFINITIONS + "\n\ndef unrelated(x: Tensor) -> Tensor:\n    return x\n"
    assert op_in(tmp_path / "c" / "definitions.py", more).digest == before


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("FACTOR = 2", "FACTOR = 3"),
        ("* FACTOR", "+ FACTOR"),
        ("helper(x).to", "helper(x).clone().to"),
        ('activations=["x"]', 'activations=["x"], contract="exact"'),
        ("import wide", "import over_tokens as wide"),
    ],
)
def test_an_ops_digest_follows_what_it_computes(tmp_path: Path, old: str, new: str) -> None:
    before = op_in(tmp_path / "a" / "definitions.py", DEFINITIONS).digest
    assert old in DEFINITIONS
    assert op_in(tmp_path / "b" / "definitions.py", DEFINITIONS.replace(old, new)).digest != before


def test_a_definition_without_a_source_says_so() -> None:
    namespace: dict[str, Op] = {}
    exec(DEFINITIONS, namespace)  # as at a Python prompt
    with pytest.raises(KernwrightError, match="twice"):
        _ = namespace["twice"].digest


def test_modules_count_by_the_names_that_are_imported_from_them(tmp_path: Path) -> None:
    def digest(module: str, text: str) -> str:
        folder = tmp_path / module / "kernwright" / "judge"
        folder.mkdir(parents=True)
        (folder / f"{module}.py").write_text("def draw(): ...\n")
        (folder / "user.py").write_text(text)
        return code_digest([Source.read(folder / "user.py")])

    before = digest("chance", "from kernwright.judge import chance\nchance.draw()\n")
    assert digest("rng", "from kernwright.judge import rng\nrng.draw()\n") == before
    assert digest("other", "from kernwright.judge import other\nother.redraw()\n") != before


@pytest.mark.parametrize(
    ("suffix", "one", "other"),
    [
        (".py", 'def f():\n    """Words."""\n    return "# kept"  # why\n', "def f():\n\n    return ('# kept')\n"),
        (".py", '"""Of\nmany lines."""\n\nx = 1\n', "x = 1\n"),
        (".py", "from kernwright.a.b import c\nc()\n", "from kernwright.d import c\nc()\n"),
        (".py", 'run("kernwright.judge.worker:main")\n', 'run("kernwright.judge.worker.program:main")\n'),
        (".py", 'build("block_loop.c")\n', 'build("worker/loop.c")\n'),
        (".cu", "int a = 1'000'000;  // why\n\n/* of\nmany */\nint b;\n", "int a=1'000'000; int b;\n"),
        (".cc", '#include "one.h"\nint a;\n', '#include "folder/other.h"\nint a;\n'),
        (".h", "#define F(x) \\\n  (x)\n", "#define F(x) (x)\n"),
    ],
)
def test_prose_and_paths_do_not_count(suffix: str, one: str, other: str) -> None:
    assert code_digest([Source(suffix, one)]) == code_digest([Source(suffix, other)])


@pytest.mark.parametrize(
    ("suffix", "one", "other"),
    [
        (".py", 'x = "# one"\n', 'x = "# two"\n'),
        (".py", 'x = """\none"""\n', 'x = """\ntwo"""\n'),
        (".py", "x = 1\n", "x = 1.0\n"),
        (".py", "x = None\n", "x: int\n"),
        (".py", "if a:\n    b()\nc()\n", "if a:\n    b()\n    c()\n"),
        (".py", "from kernwright.a import b\nb()\n", "from kernwright.a import c as b\nb()\n"),
        (".cc", 'auto a = "// one";\n', 'auto a = "// two";\n'),
        (".cc", "char a = '\"'; int b; char c = '\"';\n", "char a = '\"'; int d; char c = '\"';\n"),
        (".cc", "int a = b+ +c;\n", "int a = b++ c;\n"),
        (".cc", "#include <one.h>\nint a;\n", "#include <other.h>\nint a;\n"),
        (".cc", "#define A (x)\n", "#define A(x)\n"),
        (".cc", "#if A\nint b;\n#endif\n", "#if A int b;\n#endif\n"),
        (".cc", 'auto a = R"(// one)";\n', 'auto a = R"(// two)";\n'),
        (".json", "// one", "// two"),
    ],
)
def test_code_that_looks_like_prose_counts(suffix: str, one: str, other: str) -> None:
    assert code_digest([Source(suffix, one)]) != code_digest([Source(suffix, other)])


def test_a_file_without_code_does_not_count(tmp_path: Path) -> None:
    words, code = Source(".py", '"""What belongs here."""\n'), Source(".py", "x = 1\n")
    assert code_digest([words, code]) == code_digest([code]) != code_digest([code, code])


@pytest.mark.parametrize("kind", [".py", *C_SUFFIXES])
def test_every_source_of_the_package_keeps_its_tokens(kind: str) -> None:
    """The tokenizer of C keeps every character except white space and comments."""
    count: Callable[[str], int] = lambda text: len(re.sub(r"\s", "", text))  # noqa: E731
    for path in PACKAGE.rglob(f"*{kind}"):
        source = Source.read(path)
        assert source.code or kind == ".py"
        assert kind == ".py" or count(source.code) <= count(source.text)
