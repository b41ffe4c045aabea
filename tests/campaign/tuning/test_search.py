"""The search over a declared space: its files, its formulas, and its proposals."""

from __future__ import annotations

import itertools
import math
import tomllib
from pathlib import Path

import pytest

from kernwright.campaign.tuning.expression import Expression
from kernwright.campaign.tuning.search import ListSearch, SampledSearch, Tried, changed_most
from kernwright.campaign.tuning.space import Configuration, Space, read_space
from kernwright.campaign.tuning.template import Template
from kernwright.core.errors import BadFile

TABLES = """
[parameters.THREADS]
choices = [64, 128, 256, 512]
default = 256
[parameters.ROWS]
range = [1, 8]
default = 1
[parameters.LOAD]
choices = ["plain", "cs"]
default = "plain"
[parameters.EARLY]
choices = [false, true]
default = true
"""
CONSTRAINTS = 'constraints = ["THREADS * ROWS <= 1024", "EARLY or ROWS < 4"]'
SPACE = Space.model_validate(tomllib.loads(CONSTRAINTS + TABLES))


def speed(configuration: Configuration) -> float:
    """Return a made-up speedup, the highest for 128 threads, 5 rows, cs, early."""
    threads, rows = math.log2(float(configuration["THREADS"])), float(configuration["ROWS"])
    return 1.5 - 0.1 * abs(threads - 7) - 0.05 * abs(rows - 5) + 0.1 * (configuration["LOAD"] == "cs")


def test_a_search_finds_the_best_of_its_space_without_judging_most_of_it() -> None:
    tried: list[Tried] = []
    for _ in range(24):
        found = next(SampledSearch(SPACE, tried, seed=4).proposals())
        assert SPACE.allows(found) and found not in [each.configuration for each in tried]
        tried.append(Tried(found, None if found["ROWS"] == 8 else speed(found)))
    assert tried[0].configuration == SPACE.defaults
    everything = list(SPACE.all_configurations(10_000))
    assert len(everything) > 60
    best = sorted(map(speed, everything))[-3]
    assert max(each.value or 0 for each in tried) >= best


def test_the_past_determines_the_proposals_and_none_is_repeated() -> None:
    tried = [Tried(configuration, speed(configuration)) for configuration in SPACE.all_configurations(9)]
    first = list(SampledSearch(SPACE, tried, seed=1).proposals())
    again = list(SampledSearch(SPACE, tried, seed=1).proposals())
    other = list(SampledSearch(SPACE, tried, seed=2).proposals())
    assert first == again and first != other
    keys = [SPACE.key(each) for each in itertools.chain(first, (each.configuration for each in tried))]
    assert len(keys) == len(set(keys)) == len(list(SPACE.all_configurations(10_000))), "all are proposed in the end"


def test_an_estimate_follows_the_neighbours() -> None:
    tried = [Tried(configuration, speed(configuration)) for configuration in SPACE.all_configurations(10_000)]
    search = SampledSearch(SPACE, tried, seed=1)
    good, bad = {"THREADS": 128, "ROWS": 5, "LOAD": "cs"}, {"THREADS": 512, "ROWS": 1, "LOAD": "plain"}
    assert (search.estimate(good | {"EARLY": True}) or 0) > 1.1 * (search.estimate(bad | {"EARLY": True}) or 9)
    assert SampledSearch(SPACE, tried[:2], seed=1).estimate(SPACE.defaults) is None


def test_the_direction_is_what_changed_most() -> None:
    before = {"THREADS": 128, "ROWS": 1, "LOAD": "plain", "EARLY": True}
    assert changed_most(SPACE, before, before | {"THREADS": 512, "ROWS": 2}) == ["THREADS"]
    assert changed_most(SPACE, before, before | {"ROWS": 8, "LOAD": "cs"}) == ["LOAD", "ROWS"]
    assert changed_most(SPACE, before, before) == []


def test_a_list_is_searched_in_order_with_the_default_first() -> None:
    assert list(ListSearch(3, [1, 3, 2, 1])) == [3, 1, 2]


# Files


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "parameters"),
        ("[parameters.A]\nchoices = [1, 2]\ndefault = 3", "default 3 is not one of the values"),
        ("[parameters.A]\nchoices = [1, 2]\ndefault = 1.0", "default 1.0 is not one of the values"),
        ("[launch]\nthreads = 'A'\n[parameters.A]\nchoices = ['x']\ndefault = 'x'", "not a number"),
        ("[parameters.A]\nchoices = [1, 1]\ndefault = 1", "different values"),
        ("[parameters.A]\nchoices = ['a b']\ndefault = 'a b'", "a text must be a name"),
        ("[parameters.A]\ndefault = 1", "give either choices or range"),
        ("[parameters.A]\nrange = [5, 1]\ndefault = 1", "from the least to the greatest"),
        ("[parameters.'A B']\nrange = [1, 5]\ndefault = 1", "cannot name a constant"),
        ("constraints = ['B > 1']\n[parameters.A]\nrange = [1, 5]\ndefault = 1", "'B', which is no parameter"),
        ("constraints = ['A > 1']\n[parameters.A]\nrange = [1, 5]\ndefault = 1", "the defaults violate a constraint"),
        ("constraints = ['A.x > 1']\n[parameters.A]\nrange = [1, 5]\ndefault = 1", "is not allowed in a formula"),
    ],
)
def test_a_bad_space_is_refused_with_its_problem(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "space.toml").write_text(text)
    with pytest.raises(BadFile, match=r"space\.toml") as refusal:
        read_space(tmp_path)
    assert problem in str(refusal.value)


@pytest.mark.parametrize("text", ["__import__('os')", "A[0]", "(lambda: 1)()", "A ** 99", "f'{A}'", "min(A, key=A)"])
def test_a_formula_runs_no_code(text: str) -> None:
    with pytest.raises(ValueError, match="is not allowed in a formula"):
        Expression(text).value({"A": 1})


def test_formulas_compute() -> None:
    values = {"A": 6, "B": "cs", "C": True}
    texts = ["A * 2 - 1", "-A // 4", "2 < A <= 6 and not B == 'nc'", "max(A, 8) % 5", "C or A > 9"]
    assert [Expression(text).value(values) for text in texts] == [11, -2, True, 3, True]
    with pytest.raises(ValueError, match="cannot be computed"):
        Expression("A / 0").value(values)


CPP = """// a kernel
// kernwright tune: begin
#define THREADS 256
// kernwright tune: end
int rest;
"""
PYTHON = CPP.replace("//", "#").replace("#define THREADS 256", "THREADS = 256  # old").replace("int rest;", "rest = 1")


@pytest.mark.parametrize(("language", "text", "lines"), [
    ("cpp", CPP, ["// it 3", "#define THREADS 64", "#define ROWS 2", "#define LOAD cs", "#define EARLY 0"]),
    ("python", PYTHON, ["# it 3", "THREADS = 64", "ROWS = 2", "LOAD = 'cs'", "EARLY = False"]),
])  # fmt: skip
def test_a_template_is_rewritten_only_between_its_marks(
    tmp_path: Path, write_candidate: object, language: str, text: str, lines: list[str]
) -> None:
    folder = write_candidate(tmp_path / "own", text, language=language)  # type: ignore[operator]
    (folder / "space.toml").write_text(TABLES)
    template = Template.read(folder)
    assert template.current() is None, "it lacks parameters"
    configuration = {"THREADS": 64, "ROWS": 2, "LOAD": "cs", "EARLY": False}
    made = template.with_configuration(configuration, "it 3")
    head, _, rest = text.partition("begin\n")
    assert made == head + "begin\n" + "\n".join(lines) + "\n" + rest[rest.index("\n") + 1 :]
    (folder / template.source).write_text(made)
    assert Template.read(folder).current() == configuration
    (folder / template.source).write_text(text.replace("tune: end", ""))
    with pytest.raises(BadFile, match="has no block from"):
        Template.read(folder)
