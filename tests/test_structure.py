"""The structure of the source tree: names, sizes of folders, constructions, and the page that describes it."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "kernwright"
ARCHITECTURE = ROOT / "docs" / "architecture.md"
MOST_MODULES = 12
MOST_POSITIONAL_FIELDS = 5
# The digest of an adapter's code is part of recorded evidence, so a changed construction would make records stale.
CONSTRUCTED_POSITIONALLY = {"Adapter"}


@cache
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def classes() -> list[tuple[Path, ast.ClassDef]]:
    return [(path, node) for path, tree in trees().items() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]


def test_a_class_name_has_one_meaning() -> None:
    places = defaultdict(list)
    for path, node in classes():
        places[node.name].append(f"{path.relative_to(PACKAGE)}:{node.lineno}")
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_folder_has_more_modules_than_a_reader_can_survey() -> None:
    counts = defaultdict(int)
    for path in trees():
        counts[path.parent.relative_to(PACKAGE).as_posix()] += path.name != "__init__.py"
    assert {folder: count for folder, count in counts.items() if count > MOST_MODULES} == {}


def test_no_two_test_files_have_one_name() -> None:
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(name for name in set(names) if names.count(name) > 1) == [], "pytest imports only one of them"


def test_no_test_imports_from_a_conftest() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py")}
    importing = [
        path.name for path, text in texts.items() if re.search(r"^(from|import) conftest\b", text, re.MULTILINE)
    ]
    assert importing == [], "which of the files of this name is imported depends on the folders that pytest collects"


def test_every_package_says_what_belongs_in_it() -> None:
    silent = [path for path, tree in trees().items() if path.name == "__init__.py" and not ast.get_docstring(tree)]
    assert silent == []


def fields_of(node: ast.ClassDef) -> list[str]:
    """Return the fields that the constructor of a dataclass or a named tuple takes by position."""
    decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
    is_plain = any("dataclass" in text and "kw_only=True" not in text for text in decorators)
    if not is_plain and "NamedTuple" not in map(ast.unparse, node.bases):
        return []
    return [
        ast.unparse(statement.target)
        for statement in node.body
        if isinstance(statement, ast.AnnAssign)
        and not ast.unparse(statement.annotation).startswith("ClassVar")
        and not (statement.value and "init=False" in ast.unparse(statement.value))
    ]


def test_objects_with_many_fields_are_constructed_with_keywords() -> None:
    own = {node.name: (fields_of(node), [ast.unparse(base) for base in node.bases]) for _, node in classes()}

    def count(name: str) -> int:
        fields, bases = own.get(name, ([], []))
        return len(fields) + sum(count(base) for base in bases)

    large = {name for name in own if count(name) > MOST_POSITIONAL_FIELDS} - CONSTRUCTED_POSITIONALLY
    assert len(large) > 20, "the search finds them"
    found = []
    for path, tree in trees().items():
        for owner in ast.walk(tree):
            inside = owner.name if isinstance(owner, ast.ClassDef) else None
            for node in ast.walk(owner) if inside else ast.iter_child_nodes(owner):
                if isinstance(node, ast.Call) and node.args:
                    called = ast.unparse(node.func).rpartition(".")[2]
                    if (inside if called == "cls" else called) in large:
                        found.append(f"{path.relative_to(PACKAGE)}:{node.lineno}: {called}")
    assert sorted(set(found)) == []


# docs/architecture.md


def test_every_package_is_in_the_architecture() -> None:
    text = ARCHITECTURE.read_text(encoding="utf-8")
    packages = {path.parent.relative_to(PACKAGE).parts for path in trees() if path.name == "__init__.py"}
    named = {parts for parts in packages if len(parts) == 1} | {parts for parts in packages if parts[:1] == ("judge",)}
    wanted = {".".join(parts) for parts in named if len(parts) <= 2}
    assert {name for name in wanted if f"`{name}`" not in text} == set()


def test_every_path_in_the_architecture_exists() -> None:
    text = ARCHITECTURE.read_text(encoding="utf-8")
    paths = set(re.findall(r"`([\w/]+\.py)`", text))
    assert len(paths) > 40, "the search finds them"
    assert [path for path in sorted(paths) if not (PACKAGE / path).is_file() and not (ROOT / path).is_file()] == []


def test_the_architecture_has_the_order_that_is_enforced() -> None:
    """The table of packages lists every package after those that it imports."""
    rows = re.findall(r"^\| `(\w+)` \|", ARCHITECTURE.read_text(encoding="utf-8"), re.MULTILINE)
    place = {name: number for number, name in enumerate(rows)}
    upward = set()
    for path, tree in trees().items():
        own = path.relative_to(PACKAGE).parts[0]
        for node in ast.walk(tree):
            if own in place and isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kernwright."):
                other = str(node.module).split(".")[1]
                if place.get(other, -1) > place[own]:
                    upward.add(f"{path.relative_to(PACKAGE)} imports {other}")
    assert upward == set()
