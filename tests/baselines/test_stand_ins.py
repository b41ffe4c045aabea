"""Stand-ins: kernels can be imported without importing the package above them. Tests run in separate processes."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

from fake_package import sglang_files

PROGRAM = """
import sys
from pathlib import Path
import torch
from kernwright.baselines.sglang.stand_ins import install_sglang

install_sglang(Path(sys.argv[1]))
from sglang.kernels.ops.diffusion import triton_one_pass_rms_norm
from sglang.srt.utils.common import direct_register_custom_op, is_cuda
from sglang.multimodal_gen.runtime.platforms import current_platform

assert is_cuda() and current_platform.is_cuda() and not current_platform.is_npu()
assert triton_one_pass_rms_norm(torch.ones(2, 4), torch.ones(4)).shape == (2, 4)

def add_one(x: torch.Tensor) -> None:
    x.add_(1)

def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2

direct_register_custom_op("add_one", add_one, ["x"])
direct_register_custom_op("twice", twice, [], fake_impl=torch.empty_like)
x = torch.zeros(3)
torch.ops.sglang.add_one(x)
assert torch.ops.sglang.twice(x).tolist() == [2, 2, 2]
try:
    import sglang.lang
except ModuleNotFoundError:
    print("as it should")
"""


def test_only_kernel_modules_are_imported(tmp_path: Path) -> None:
    for name, text in sglang_files().items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), str(tmp_path)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == "as it should", done.stderr
