"""Space: the parameters of a candidate that may be tuned, declared in its space.toml."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from kernwright.campaign.tuning.expression import Expression, Value
from kernwright.core.errors import BadFile
from kernwright.tasks.files import read_toml

SPACE_FILE = "space.toml"
Configuration = Mapping[str, Value]
MOST_VALUES = 1000  # a parameter has at most this many values
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class TunedParameter(BaseModel):
    """One parameter: a list of choices, or a range of numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", ignored_types=(cached_property,))

    choices: tuple[bool | int | float | str, ...] | None = None
    range: tuple[int, int] | None = Field(default=None, description="the least and the greatest whole number")
    step: int = Field(default=1, ge=1)
    default: bool | int | float | str
    meaning: str = ""

    @model_validator(mode="after")
    def has_values(self) -> TunedParameter:
        if (self.choices is None) == (self.range is None):
            raise ValueError("give either choices or range")
        if self.range is not None and not 0 <= (self.range[1] - self.range[0]) // self.step < MOST_VALUES:
            raise ValueError(f"range must go from the least to the greatest, with at most {MOST_VALUES} values")
        if not self.values or len(self.values) > MOST_VALUES or len(set(self.values)) != len(self.values):
            raise ValueError(f"choices must be 1 to {MOST_VALUES} different values")
        if any(isinstance(value, str) and not _WORD.fullmatch(value) for value in self.values):
            raise ValueError("a text must be a name: letters, digits and underscores")
        if any(isinstance(value, float) and not math.isfinite(value) for value in self.values):
            raise ValueError("numbers must be finite")
        if not _is_in(self.default, self.values):
            raise ValueError(f"default {self.default!r} is not one of the values")
        return self

    @cached_property
    def values(self) -> tuple[Value, ...]:
        if self.choices is not None:
            return self.choices
        assert self.range is not None
        return tuple(range(self.range[0], self.range[1] + 1, self.step))

    @property
    def is_ordered(self) -> bool:
        numbers = [value for value in self.values if not isinstance(value, str | bool)]
        return len(numbers) == len(self.values) and list(numbers) == sorted(numbers)

    def distance(self, one: Value, other: Value) -> float:
        """Return the distance of two values, from 0 to 1. For ordered values, it is computed from their places."""
        if one == other:
            return 0.0
        if not self.is_ordered:
            return 1.0
        return abs(self.values.index(one) - self.values.index(other)) / (len(self.values) - 1)


class LaunchFormulas(BaseModel):
    """The resources that a configuration needs, as formulas over the parameters. Their values are numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    threads: str | None = Field(default=None, description="threads of a block")
    values_per_thread: str | None = Field(default=None, description="values that a thread holds at once")
    shared_bytes: str | None = Field(default=None, description="dynamic shared memory of a block")

    def formulas(self) -> dict[str, Expression]:
        return {name: Expression(text) for name, text in self.model_dump().items() if text is not None}


class Space(BaseModel):
    """The content of space.toml."""

    model_config = ConfigDict(frozen=True, extra="forbid", ignored_types=(cached_property,))

    source: str | None = Field(default=None, description="file with the marked block; default: the entry's file")
    parameters: dict[str, TunedParameter] = Field(min_length=1)
    constraints: tuple[str, ...] = ()
    launch: LaunchFormulas = LaunchFormulas()

    @field_validator("parameters")
    @classmethod
    def names_are_words(cls, parameters: dict[str, TunedParameter]) -> dict[str, TunedParameter]:
        if bad := [name for name in parameters if not _WORD.fullmatch(name)]:
            raise ValueError(f"{bad[0]!r} cannot name a constant")
        return parameters

    @model_validator(mode="after")
    def formulas_are_known(self) -> Space:
        for formula in (*map(Expression, self.constraints), *self.launch.formulas().values()):
            if strange := formula.names() - set(self.parameters):
                raise ValueError(f"{formula.text!r} names {sorted(strange)[0]!r}, which is no parameter")
            formula.value(self.defaults)
        self.asked(self.defaults)
        if not self.allows(self.defaults):
            raise ValueError("the defaults violate a constraint")
        return self

    @property
    def defaults(self) -> Configuration:
        return {name: parameter.default for name, parameter in self.parameters.items()}

    def asked(self, configuration: Configuration) -> dict[str, int]:
        """Return the resources that a configuration needs. Raise ValueError if a formula has no number as its value."""
        return {name: formula.number(configuration) for name, formula in self.launch.formulas().items()}

    @property
    def size(self) -> int:
        """Return the number of configurations, without regard to constraints."""
        return math.prod(len(parameter.values) for parameter in self.parameters.values())

    def holds(self, configuration: Configuration) -> bool:
        """Return whether a configuration has a declared value for exactly the declared parameters."""
        return configuration.keys() == self.parameters.keys() and all(
            _is_in(configuration[name], parameter.values) for name, parameter in self.parameters.items()
        )

    def allows(self, configuration: Configuration) -> bool:
        """Return whether all constraints hold. One that cannot be computed does not."""
        try:
            return all(Expression(text).value(configuration) for text in self.constraints)
        except ValueError:
            return False

    def key(self, configuration: Configuration) -> str:
        return as_json({name: configuration[name] for name in self.parameters})

    def all_configurations(self, most: int) -> Iterator[Configuration]:
        """Yield the allowed configurations among the first `most` ones."""
        names = list(self.parameters)
        combinations = itertools.product(*(self.parameters[name].values for name in names))
        for values in itertools.islice(combinations, most):
            found = dict(zip(names, values, strict=True))
            if self.allows(found):
                yield found

    def distance(self, one: Configuration, other: Configuration) -> float:
        """Return the distance of two configurations; 1 if only one parameter differs, by its whole range."""
        return math.hypot(*(each.distance(one[name], other[name]) for name, each in self.parameters.items()))

    def positions(self, configuration: Configuration) -> dict[str, Any]:
        """Return a configuration as a sampler sees it: ordered parameters by their places."""
        return {
            name: each.values.index(configuration[name]) if each.is_ordered else configuration[name]
            for name, each in self.parameters.items()
        }

    def at(self, positions: Mapping[str, Any]) -> Configuration:
        """Return the configuration of a sampler's positions."""
        return {
            name: each.values[positions[name]] if each.is_ordered else positions[name]
            for name, each in self.parameters.items()
        }


def _is_in(value: Value, values: tuple[Value, ...]) -> bool:
    return any(type(value) is type(each) and value == each for each in values)


def as_json(configuration: Configuration) -> str:
    """Return a configuration as JSON. Equal configurations have equal texts."""
    return json.dumps(dict(configuration), sort_keys=True)


def read_space(folder: Path) -> Space:
    """Return the space of a candidate. Raise BadFile if it declares none."""
    path = folder / SPACE_FILE
    if not path.is_file():
        raise BadFile(
            path, "", "does not exist, so the agent tuner has nothing to search",
            "declare the parameters of the candidate there (docs/campaign_agents.md), or choose another agent",
        )  # fmt: skip
    return read_toml(path, Space, "declare parameters with choices and a default")
