"""Machine code of CUDA kernels: their instructions, which of them may run ahead of a kernel's turn, and other rules."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from kernwright.runtime.target import nvcc

WAIT = "ACQBULK"  # instruction for griddepcontrol.wait
SIZE = 16  # bytes per instruction
# Instructions that start with these access memory: global memory, except for the names below.
MEMORY = ("LD", "ST", "ATOM", "RED", "SULD", "SUST", "SUATOM", "SURED", "TEX", "TLD", "UTMA", "UBLK", "CCTL")
ELSEWHERE = ("LDC", "LDCU", "LDS", "LDSM", "LDL", "STS", "STSM", "STL", "ATOMS", "REDUX")
JUMPS = ("BRA", "CALL", "BRX", "BRXU", "JMP", "JMX", "JMXU")
LINE = re.compile(r"/\*([0-9a-f]{4,})\*/ +(@\S+ +)?([A-Z0-9]+)([.\w]*) *([^;]*);")


@dataclass(frozen=True)
class Instruction:
    """One instruction. `name` has no suffixes."""

    text: str
    name: str
    target: int | None  # target of a jump, if the instruction contains it
    goes_on: bool  # whether execution may continue with the next instruction

    @property
    def may_touch_global_memory(self) -> bool:
        return self.name.startswith(MEMORY) and self.name not in ELSEWHERE

    @property
    def goes_anywhere(self) -> bool:
        return self.name in JUMPS and self.target is None


Kernel = dict[int, Instruction]  # instructions by address


@cache
def cuobjdump() -> str | None:
    """Return the toolkit's cuobjdump, or the one that comes with Triton."""
    triton = find_spec("triton")
    folders = [Path(str(nvcc())).parent]
    folders += [Path(own, "backends/nvidia/bin") for own in (triton and triton.submodule_search_locations) or ()]
    found = (shutil.which("cuobjdump", path=str(folder)) for folder in folders)
    return shutil.which("cuobjdump") or next((own for own in found if own), None)


def kernels_in(built: Path) -> dict[str, Kernel]:
    """Return the kernels of a library or a cubin by their mangled names."""
    said = subprocess.run([str(cuobjdump()), "-sass", str(built)], capture_output=True, text=True, check=True).stdout
    parts = (part.partition("\n") for part in said.split("Function : ")[1:])
    kernels = {name: dict(_instructions(code)) for name, _, code in parts}
    for name, kernel in kernels.items():
        assert list(kernel) == list(range(0, SIZE * len(kernel), SIZE)), f"not all of {name} could be read"
    return kernels


def _instructions(code: str) -> Iterator[tuple[int, Instruction]]:
    for address, guard, name, suffix, operands in LINE.findall(code):
        place = re.fullmatch(r"(?:!?U?P\w+, |UR\d+, )?0x([0-9a-f]+) *", operands) if name in JUMPS else None
        ends = not guard and (name in ("EXIT", "RET") or (name == "BRA" and operands.startswith("0x")))
        text = f"{guard}{name}{suffix} {operands}".strip()
        yield int(address, 16), Instruction(text, name, int(place[1], 16) if place else None, not ends)


def ahead_of_turn(kernel: Kernel) -> list[str]:
    """Return accesses to global memory that a thread may reach before it has waited, and jumps that cannot be
    followed."""
    found: list[str] = []
    waiting, seen = [0], set[int]()
    while waiting:
        address = waiting.pop()
        if address in seen or address not in kernel or kernel[address].name == WAIT:
            continue
        seen.add(address)
        own = kernel[address]
        if own.may_touch_global_memory or own.goes_anywhere:
            found.append(own.text)
        if own.target is not None:
            waiting.append(own.target)
        if own.goes_on:
            waiting.append(address + SIZE)
    return found


def waits_for_its_turn(built: Path) -> None:
    """Raise AssertionError if a kernel may access global memory before it has waited for its turn."""
    kernels = kernels_in(built)
    assert kernels, f"{built} has no kernels"
    for name, kernel in kernels.items():
        assert any(own.name == WAIT for own in kernel.values()), f"{name} does not wait"
        assert any(own.may_touch_global_memory for own in kernel.values()), f"{name} seems to do nothing"
        early = ahead_of_turn(kernel)
        assert not early, f"{name}: {early}"


def fuses_no_product(built: Path) -> None:
    """Raise AssertionError if PTX fuses a product into a sum, or rounds other than the eager chain."""
    text = built.read_text()
    assert "mul.rn.f32" in text and "add.rn.f32" in text, f"{built} has no products or no sums"
    found = re.search(r"\bfma\.|\b(mul|add)\.(ftz\.)?f32|\.ftz", text)
    assert not found, f"{built} has {found}"


def compiles(built: Path) -> None:
    """Raise AssertionError if a file is no machine code."""
    assert built.read_bytes()[:4] == b"\x7fELF", f"{built} is no machine code"


def needs_nothing_undefined(built: Path) -> None:
    """Raise AssertionError if a library cannot be loaded, or calls a function that nothing defines."""
    try:
        ctypes.CDLL(str(built), mode=os.RTLD_NOW)
    except OSError as error:
        raise AssertionError(str(error)) from error
