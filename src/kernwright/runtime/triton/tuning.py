"""Tuning: the lookup of the configuration that a Triton kernel runs with. Calls never search for a better one.

There are two tables: the user's, which `kernwright tune` writes below KERNWRIGHT_CACHE, and the one that ships for the
GPU model. An entry of exactly this width comes first, then one of a width with the same power of two; without an entry
the kernel's default is used. Each situation is looked up once per process. A file that cannot be read is ignored with a
warning, since every configuration gives a correct result.
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
MOST_ELEMENTS = 65536  # elements of one program: with more, compilation takes too long


class IgnoredTable(UserWarning):
    """A table of configurations that cannot be used."""


def _power_of_two(number: int) -> int:
    if number != power_of_two(number):
        raise ValueError("is not a power of two")
    return number


Power = Annotated[int, Field(ge=1), AfterValidator(_power_of_two)]


class Entry(BaseModel):
    """A measurement: the best configuration of a situation, with its time, that of the default and that of a copy."""

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
        """Refuse configurations that no compiler can handle."""
        if self.rows * self.block > MOST_ELEMENTS:
            raise ValueError(f"has {self.rows} x {self.block} elements a program, over {MOST_ELEMENTS}")
        return self

    @property
    def configuration(self) -> Configuration:
        """Return the configuration that was the fastest."""
        return Configuration(self.rows, self.block, self.warps)

    @property
    def situation(self) -> Situation:
        """Return the situation that was measured."""
        return Situation(self.op, self.width, self.element_bytes, self.tokens == "few")

    def serves(self, width: int) -> bool:
        """Return whether this entry holds for another width.

        The width must round up to the same power of two. If the last block of the measured width is full, that of this
        width must be full, too.
        """
        if power_of_two(width) != power_of_two(self.width):
            return False
        return self.block >= width or width % self.block == 0 or self.width % self.block != 0


class Place(BaseModel):
    """The device and the software that a table was measured with."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    device: str
    capability: str = ""
    driver: str = ""
    torch: str = ""
    triton: str = ""


class TuningTable(BaseModel):
    """The configurations of one GPU model, one for each situation."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    kernwright: str = ""
    date: str = ""
    place: Place
    entries: tuple[Entry, ...] = ()

    @classmethod
    def read(cls, path: Path) -> TuningTable:
        """Read a table. Raise OSError or ValueError if the file is not a table of this format."""
        return cls.model_validate_json(path.read_bytes())

    def write(self, path: Path) -> None:
        """Write the table. The file is replaced as a whole."""
        # One entry per line, so that a diff is readable.
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
                f"{path} cannot be written: {error.strerror or error}", f"set {CACHE_VARIABLE} to a writable folder"
            ) from error

    def with_entry(self, entry: Entry) -> TuningTable:
        """Return this table with an entry in place of the one for the same situation."""
        others = [own for own in self.entries if own.situation != entry.situation]
        order = sorted([*others, entry], key=lambda own: (own.op, own.width, own.element_bytes, own.tokens))
        return self.model_copy(update={"entries": tuple(order)})

    def entry(self, situation: Situation) -> Entry | None:
        """Return the entry of exactly this situation, or None."""
        return next((own for own in self.entries if own.situation == situation), None)

    def nearest(self, situation: Situation) -> Entry | None:
        """Return the entry of the nearest other width whose configuration serves this situation, or None."""
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
    """A configuration and the table that it comes from."""

    configuration: Configuration
    source: Literal["yours", "shipped", "default"]
    path: Path | None = None
    width: int | None = None  # the width that was measured

    def __str__(self) -> str:
        measured = f": {self.path.name}, measured {self.width} wide" if self.path else ""
        return f"{self.configuration} ({self.source}{measured})"


_tried: Configuration | None = None


def chosen(op: str, width: int, elements: int, element_bytes: int, device: torch.device) -> Configuration:
    """Return the configuration of a launch. `op` is the one that the kernel is named after."""
    return _tried or looked_up(op, width, element_bytes, elements < FEW, device).configuration


@lru_cache(maxsize=4096)
def looked_up(op: str, width: int, element_bytes: int, is_few: bool, device: torch.device) -> Found:
    """Return the configuration of a situation on a device, and its source."""
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
    """Run every kernel of the process with one configuration, for measurements."""
    global _tried
    before, _tried = _tried, configuration
    try:
        yield
    finally:
        _tried = before


def forget() -> None:
    """Forget all tables, so that files are read again."""
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
            f"{path} is ignored, and default configurations are used: {why}\n"
            "  remedy: delete it; kernwright tune writes a new one",
            IgnoredTable,
            stacklevel=2,
        )
        return None


def user_file(model: str) -> Path:
    """Return the path of the user's table for a GPU model."""
    return cache_folder().parent / "tuned" / f"{model}.json"


@cache
def model_of(device: torch.device) -> str | None:
    """Return the model of a GPU as tables are named, such as `nvidia-h200`; None for a device that is not here."""
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
    """Return the situation that a launch looks up; None if the op's Triton kernel is not tuned."""
    op = kernel_of(call.op.name)
    if op is None:
        return None
    x = call.tensors.get("update", call.first)
    work: Work | None = (x.shape[-1] if x.ndim else 1), x.numel(), x.element_size()
    if op in _work:
        work = _work[op](call)
    return None if work is None else Situation(op, work[0], work[2], work[1] < FEW)


def configured(call: Call) -> Found | None:
    """Return the configuration that the Triton kernel of a call runs with; None if it has none."""
    asked = situation_of(call)
    if asked is None:
        return None
    return looked_up(asked.op, asked.width, asked.element_bytes, asked.is_few, call.first.device)


def is_interpreted() -> bool:
    """Return whether Triton runs kernels in its interpreter, on the CPU."""
    return os.environ.get("TRITON_INTERPRET") == "1"
