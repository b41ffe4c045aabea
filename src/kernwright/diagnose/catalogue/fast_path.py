"""FastPath: one entry of the catalogue, a kernel that is known to do the work of slower ones."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from kernwright.diagnose.category import Category

# available: a user can turn it on today. definition: Kernwright defines the operation and has no kernel for it.
# in flight: the code is in open upstream work only.
PathState = Literal["available", "definition", "in flight"]
WorkState = Literal["open", "merged", "closed", "unknown"]


def _compiles(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from None
    return pattern


Pattern = Annotated[str, Field(min_length=3), AfterValidator(_compiles)]
Range = Annotated[tuple[float, float], Field(description="the lowest and the highest value that is expected")]


class UpstreamWork(BaseModel):
    """A change of another project that adds or extends a fast path."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    repository: Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$")]
    number: Annotated[int, Field(ge=1, description="number of the pull request")]
    state: WorkState = Field(default="unknown", description="as it was known when the entry was written")
    about: str = ""

    def __str__(self) -> str:
        return f"{self.repository}#{self.number}"


class Requirements(BaseModel):
    """The requirements of a fast path. `notes` has those in words that cannot be checked in a trace."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    vendor: Literal["nvidia", "amd"] | None = None
    capability: tuple[int, int] | None = Field(default=None, description="least compute capability, such as [9, 0]")
    below: tuple[int, int] | None = Field(default=None, description="the first compute capability that is too new")
    dtypes: tuple[str, ...] = Field(default=(), description="dtypes of the activations; none named: any")
    norms: tuple[Literal["layer_norm", "rms_norm", "group_norm"], ...] = Field(
        default=(), description="the kinds of norm that it computes; none named: any"
    )
    several_queries: bool = Field(default=False, description="attention with more than one query token")
    width_multiple: int = Field(default=1, ge=1, description="divisor of the last axis")
    width_least: int = Field(default=1, ge=1, description="smallest last axis")
    width_most: int | None = Field(default=None, ge=1, description="largest last axis")
    notes: tuple[str, ...] = ()

    @property
    def in_words(self) -> tuple[str, ...]:
        """All requirements in words."""
        stated = [
            f"a GPU of {self.vendor}" if self.vendor else "",
            "compute capability {}.{} or newer".format(*self.capability) if self.capability else "",
            "compute capability below {}.{}".format(*self.below) if self.below else "",
            " or ".join(self.dtypes),
            " or ".join(self.norms),
            "more than one query token" if self.several_queries else "",
            f"a width that is a multiple of {self.width_multiple}" if self.width_multiple > 1 else "",
            f"a width of at least {self.width_least}" if self.width_least > 1 else "",
            f"a width of at most {self.width_most}" if self.width_most else "",
        ]
        return (*(each for each in stated if each), *self.notes)


class FastPath(BaseModel):
    """One known fast path."""

    model_config = ConfigDict(frozen=True, extra="forbid", ignored_types=(cached_property,))

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$")]
    provider: Annotated[str, Field(min_length=1, description="the project that has it")]
    about: Annotated[str, Field(min_length=1)]
    category: Category
    state: PathState = "available"
    kernels: tuple[Pattern, ...] = Field(default=(), description="names of its own kernels: they are in use")
    operators: tuple[Pattern, ...] = Field(default=(), description="names of the operators that launch its kernels")
    chains: tuple[str, ...] = Field(default=(), description="chains of chains.toml that it replaces")
    spellings: tuple[str, ...] = Field(default=(), description="further chains that it replaces, as in chains.toml")
    slower: tuple[Pattern, ...] = Field(default=(), description="names of kernels that do the same work more slowly")
    speedup: Range | None = Field(default=None, description="time of the slower kernels over its own")
    copy_share: Range = Field(default=(0.8, 1.0), description="share of a copy's bandwidth that its kernels reach")
    remains: tuple[float, float] | None = Field(
        default=None, description="share of the chain's time that remains, if another kernel takes its work over"
    )
    models: tuple[str, ...] = ()
    requires: Requirements = Requirements()
    turn_on: str = Field(default="", description="what a user does to get it")
    source: Annotated[str, Field(min_length=1, description="where it is: package, version, function or file")]
    work: tuple[UpstreamWork, ...] = ()

    @model_validator(mode="after")
    def matches_something(self) -> Self:
        if not (self.kernels or self.operators or self.chains or self.spellings or self.slower):
            raise ValueError("must name kernels, operators, chains, spellings or slower kernels, got none of them")
        return self

    @model_validator(mode="after")
    def says_how(self) -> Self:
        if (self.chains or self.spellings or self.slower) and self.state == "available" and not self.turn_on:
            raise ValueError("replaces other kernels, but has no `turn_on`")
        if self.state == "in flight" and not self.work:
            raise ValueError("is in flight, but has no `work`")
        if self.slower and self.speedup is None:
            raise ValueError("names slower kernels, but has no `speedup` over them")
        return self

    @model_validator(mode="after")
    def ranges_are_ordered(self) -> Self:
        for name in ("speedup", "copy_share"):
            values = getattr(self, name)
            if values is not None and not 0 < values[0] <= values[1]:
                raise ValueError(f"{name} must be two positive numbers in order, got {list(values)}")
        return self

    def runs(self, kernel: str, operator: str = "") -> bool:
        """Return whether a kernel of this name, launched by this operator, belongs to the path."""
        if self._own and self._own.search(kernel):
            return True
        return bool(operator and self._operators and self._operators.search(operator))

    def outruns(self, kernel: str) -> bool:
        """Return whether the path does the work of a kernel of this name faster."""
        return bool(self._slower and self._slower.search(kernel))

    @cached_property
    def _own(self) -> re.Pattern[str] | None:
        return _either(self.kernels)

    @cached_property
    def _operators(self) -> re.Pattern[str] | None:
        return _either(self.operators)

    @cached_property
    def _slower(self) -> re.Pattern[str] | None:
        return _either(self.slower)

    @property
    def open_work(self) -> tuple[UpstreamWork, ...]:
        return tuple(work for work in self.work if work.state in ("open", "unknown"))


def _either(patterns: Sequence[str]) -> re.Pattern[str] | None:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.IGNORECASE) if patterns else None
