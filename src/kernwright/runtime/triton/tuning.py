"""Tuning: which configuration a Triton kernel runs with. Measured ones are looked up here, and never searched for.

Two tables are asked: the user's own, which `kernwright tune` writes below KERNWRIGHT_CACHE, and the one that ships for
the GPU's model. One that has just this width comes first, then one that has a width of the same power of two; where
neither has an answer, the kernel's default stands. A situation is looked up once in a process. A file that cannot be
read is left out with a warning: no call fails for it, since every configuration gives a right result.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Annotated, Literal

import torch
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from kernwright.core.errors import EnvironmentProblem
from kernwright.runtime.call import Call
from kernwright.runtime.library import CACHE_VARIABLE, cache_folder
from kernwright.runtime.triton.configurations import FEW, Configuration, Situation, kernel_of, power_of_two

SHIPPED = Path(__file__).resolve().parents[2] / "ops" / "tuned"
INTERPRETER = "triton-interpreter"
MOST_ELEMENTS = 65536  # a program's: beyond it no compiler comes to an end


class IgnoredTable(UserWarning):
    """A table of configurations that cannot be used."""


def _power_of_two(number: int) -> int:
    if number != power_of_two(number):
        raise ValueError("is no power of two")
    return number


Power = Annotated[int, Field(ge=1), AfterValidator(_power_of_two)]


class Entry(BaseModel):
    """What was measured in one situation: the configuration that won; microseconds of it, the default and a copy."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    op: str
    width: Annotated[int, Field(ge=1)]
    element_bytes: Annotated[int, Field(ge=1)]
    tokens: Literal["few", "many"]
    rows: Power
    block: Annotated[Power, Field(ge=16)]
    warps: Annotated[Power, Field(le=32)]
    us: float = 0.0
    default_us: float = 0.0
    copy_us: float = Field(default=0.0, description="of as many bytes as the row moves at least")
    measured_on: str = Field(default="", description="task and row")

    @model_validator(mode="after")
    def is_bounded(self) -> Entry:
        if self.rows * self.block > MOST_ELEMENTS:
            raise ValueError(f"has {self.rows} x {self.block} elements a program, over {MOST_ELEMENTS}")
        return self

    @property
    def configuration(self) -> Configuration:
        return Configuration(self.rows, self.block, self.warps)

    @property
    def situation(self) -> Situation:
        return Situation(self.op, self.width, self.element_bytes, self.tokens == "few")

    def serves(self, width: int) -> bool:
        """Another width of the same power of two, cut up with no more of a rest than the width that was measured."""
        if power_of_two(width) != power_of_two(self.width):
            return False
        return self.block >= width or width % self.block == 0 or self.width % self.block != 0


class Place(BaseModel):
    """Where a table was measured. Times of one place say little about another."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    device: str
    capability: str = ""
    driver: str = ""
    torch: str = ""
    triton: str = ""


class TuningTable(BaseModel):
    """One GPU model's configurations, one for each situation."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    kernwright: str = ""
    date: str = ""
    place: Place
    entries: tuple[Entry, ...] = ()

    @classmethod
    def read(cls, path: Path) -> TuningTable:
        """Raises OSError or ValueError for what is no table of this format."""
        return cls.model_validate_json(path.read_bytes())

    def write(self, path: Path) -> None:
        """Whole or not at all, whoever else writes it."""
        # One entry a line: a table is read, and compared with the one before, by people too.
        entries = ",\n".join(f"  {json.dumps(entry.model_dump())}" for entry in self.entries)
        head = json.dumps(self.model_dump(exclude={"entries"}), indent=1).removesuffix("\n}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".part-", dir=path.parent) as scratch:
                part = Path(scratch, path.name)
                part.write_text(f'{head},\n "entries": [\n{entries}\n ]\n}}\n', encoding="utf-8")
                part.replace(path)
        except OSError as error:
            raise EnvironmentProblem(
                f"{path} cannot be written: {error.strerror or error}", f"set {CACHE_VARIABLE} to a folder that can be"
            ) from error

    def with_entry(self, entry: Entry) -> TuningTable:
        others = [own for own in self.entries if own.situation != entry.situation]
        order = sorted([*others, entry], key=lambda own: (own.op, own.width, own.element_bytes, own.tokens))
        return self.model_copy(update={"entries": tuple(order)})

    def entry(self, situation: Situation) -> Entry | None:
        return next((own for own in self.entries if own.situation == situation), None)

    def nearest(self, situation: Situation) -> Entry | None:
        """Of another width, measured in the same situation otherwise."""
        alike = [
            own
            for own in self.entries
            if (own.op, own.element_bytes, own.situation.is_few)
            == (situation.op, situation.element_bytes, situation.is_few)
            and own.serves(situation.width)
        ]
        return min(alike, key=lambda own: abs(own.width - situation.width), default=None)


@dataclass(frozen=True)
class Found:
    """A configuration, and whose it is."""

    configuration: Configuration
    source: Literal["yours", "shipped", "default"]
    path: Path | None = None
    width: int | None = None  # that was measured

    def __str__(self) -> str:
        measured = f": {self.path.name}, measured {self.width} wide" if self.path else ""
        return f"{self.configuration} ({self.source}{measured})"


_tried: Configuration | None = None


def chosen(op: str, width: int, elements: int, element_bytes: int, device: torch.device) -> Configuration:
    """What a launch asks. `op`: the one that the kernel is named after."""
    return _tried or looked_up(op, width, element_bytes, elements < FEW, device).configuration


@lru_cache(maxsize=4096)
def looked_up(op: str, width: int, element_bytes: int, is_few: bool, device: torch.device) -> Found:
    situation = Situation(op, width, element_bytes, is_few)
    model = model_of(device)
    places: list[tuple[Literal["yours", "shipped"], Path]] = []
    if model is not None:
        places = [("yours", user_file(model)), ("shipped", SHIPPED / f"{model}.json")]
    tables = [(source, path, table) for source, path in places if (table := _readable(path)) is not None]
    looks: tuple[Callable[[TuningTable, Situation], Entry | None], ...] = (TuningTable.entry, TuningTable.nearest)
    for look in looks:
        for source, path, table in tables:
            if (entry := look(table, situation)) is not None:
                return Found(entry.configuration, source, path, entry.width)
    return Found(situation.default, "default")


@contextmanager
def trying(configuration: Configuration) -> Iterator[None]:
    """Every kernel of the process runs with it, whatever the tables say: for those who measure."""
    global _tried
    before, _tried = _tried, configuration
    try:
        yield
    finally:
        _tried = before


def forget() -> None:
    """Files are read anew."""
    looked_up.cache_clear()
    _readable.cache_clear()


@cache
def _readable(path: Path) -> TuningTable | None:
    try:
        return TuningTable.read(path)
    except FileNotFoundError:
        return None
    except (OSError, ValidationError, ValueError) as error:
        first = error.errors()[0] if isinstance(error, ValidationError) else None
        why = f"{'.'.join(map(str, first['loc']))}: {first['msg']}" if first else str(error)
        warnings.warn(
            f"{path} is ignored, and default configurations run: {why}\n"
            "  remedy: delete it, and let kernwright tune write another",
            IgnoredTable,
            stacklevel=2,
        )
        return None


def user_file(model: str) -> Path:
    return cache_folder().parent / "tuned" / f"{model}.json"


@cache
def model_of(device: torch.device) -> str | None:
    """A GPU's model as files are named, `nvidia-h200`; none for one that is not here."""
    if device.type == "cpu":
        return INTERPRETER
    if device.type != "cuda" or not torch.cuda.is_available():
        return None
    return re.sub(r"[^a-z0-9]+", "-", torch.cuda.get_device_name(device).lower()).strip("-")


Work = tuple[int, int, int]  # width, elements, bytes of an element
_work: dict[str, Callable[[Call], Work | None]] = {}


def measured_by(op: str, work: Callable[[Call], Work | None]) -> None:
    """Register how the work of a call is read, for an op whose width is not that of its first tensor."""
    _work[op] = work


def situation_of(call: Call) -> Situation | None:
    """Return the situation that a launch looks up; none where the op's Triton kernel is not tuned."""
    op = kernel_of(call.op.name)
    if op is None:
        return None
    x = call.tensors.get("update", call.first)
    work: Work | None = (x.shape[-1] if x.ndim else 1), x.numel(), x.element_size()
    if op in _work:
        work = _work[op](call)
    return None if work is None else Situation(op, work[0], work[2], work[1] < FEW)


def configured(call: Call) -> Found | None:
    asked = situation_of(call)
    if asked is None:
        return None
    return looked_up(asked.op, asked.width, asked.element_bytes, asked.is_few, call.first.device)


def is_interpreted() -> bool:
    return os.environ.get("TRITON_INTERPRET") == "1"
