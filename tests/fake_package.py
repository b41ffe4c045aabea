"""A package that looks like sglang but computes with torch, in wheels that are locked as a maintainer would."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kernwright.packages import store
from kernwright.packages.download import WheelSource
from kernwright.packages.files import folder_bytes, sha256
from kernwright.packages.tree import Tree, Wheel

RIGHT = (
    "x32 = x.float()\n    return (x32 * torch.rsqrt(x32.pow(2).mean(-1, keepdim=True) + eps) * w.float()).to(x.dtype)"
)
FACADE = """
from sglang.srt.utils.custom_op import doubled
import torch

def triton_one_pass_rms_norm(x, w, eps=1e-6):
    {body}
"""
# sglang itself would do this on import. A stand-in must replace it.
LOUD = "raise RuntimeError('the whole of sglang was imported')\n"


def sglang_files(body: str = RIGHT) -> dict[str, str]:
    return {
        "sglang/__init__.py": LOUD,
        "sglang/srt/__init__.py": LOUD,
        "sglang/srt/utils/__init__.py": LOUD,
        "sglang/srt/utils/custom_op.py": "from sglang.srt.utils.common import direct_register_custom_op\ndoubled = 2\n",
        "sglang/kernels/__init__.py": LOUD,
        "sglang/kernels/ops/__init__.py": LOUD,
        "sglang/kernels/ops/diffusion/__init__.py": FACADE.format(body=body),
        "sglang/kernels/ops/layernorm/__init__.py": "",
        "sglang/kernels/ops/layernorm/norm.py": "def rmsnorm(x, w, out, eps): raise NotImplementedError\n",
        "sglang/unneeded.txt": "left out",
    }


@dataclass
class Shelf:
    """A folder of wheels, with trees that are locked to their unpacked content."""

    folder: Path
    write_wheel: Callable[..., Path]

    @property
    def source(self) -> WheelSource:
        return WheelSource(folder=self.folder)

    def tree(self, name: str, files: dict[str, str], **more: object) -> Tree:
        """Lock a tree as a maintainer does: unpack it once and record its digest."""
        wheel = self.write_wheel(self.folder, name, version="1.0", files=files)
        locked = Wheel(file=wheel.name, sha256=sha256(wheel))
        draft = Tree.model_validate({"name": name, "wheels": (locked,), "digest": "0" * 64, "bytes": 0, **more})
        place = self.folder / f"{name}.drafted"
        place.mkdir()
        store._unpack(draft, self.source, self.folder / f"{name}.wheels", place)
        return draft.model_copy(update={"digest": store.tree_digest(place), "bytes": folder_bytes(place)})
