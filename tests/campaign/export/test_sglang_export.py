"""Exports to sglang: the patch applies, the kernel is registered, its exported test passes, and drift is reported."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from made_promotable import GOOD, IN_TRITON, MadeCampaign, git, make_campaign
from made_sglang_tree import make_sglang_tree

from kernwright.campaign.export.sglang_export import SglangExport
from kernwright.campaign.export.sglang_tree import SglangTree
from kernwright.core.errors import ExistsAlready, KernwrightError

SGLANG = "sglang==0.5.23"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, good_verdict: Any, quiet: Any) -> MadeCampaign:
    """Make a campaign whose best version is in C++."""
    return make_campaign(tmp_path_factory.mktemp("export")).iterate_once(good_verdict, quiet)


def run_exported_test(tree: Path, prefix: str = "") -> str:
    """Run the exported test in a process that imports the tree's sglang; return the summary of pytest."""
    code = f"{prefix}\nimport pytest, sys\nsys.exit(pytest.main(sys.argv[1:]))"
    (test,) = sorted((tree / "test").rglob("test_*.py"))
    environment = os.environ | {"PYTHONPATH": str(tree), "TRITON_INTERPRET": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code, "-q", "-p", "no:cacheprovider", f"--rootdir={tree}", "-c", "/dev/null", str(test)],
        env=environment, capture_output=True, text=True, timeout=600, cwd=tree,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    return done.stdout.strip().splitlines()[-1]


def apply_patch(tree: Path, patch: str) -> None:
    file = tree.parent / f"{tree.name}.patch"
    file.write_text(patch)
    git(tree, "init", "-q")
    git(tree, "apply", str(file))


def test_a_native_kernel_is_exported_with_its_test(made: MadeCampaign, tmp_path: Path) -> None:
    tree = make_sglang_tree(tmp_path / "tree")
    export = SglangExport(campaign=made.campaign, root=tree)
    before = {path: path.read_bytes() for path in tree.rglob("*") if path.is_file()}
    patch = export.patch()
    assert {path: path.read_bytes() for path in tree.rglob("*") if path.is_file()} == before, "only a patch is made"
    apply_patch(tree, patch)
    assert SglangExport(campaign=made.campaign, root=tree).changes() == {}, "the patch is the whole export"
    copied = tree / "sglang" / "kernels" / "jit" / "csrc" / "diffusion" / "rotary" / "kernel.cc"
    assert copied.read_text() == GOOD["kernel.cc"]
    launcher = (tree / "sglang/kernels/ops/diffusion/rope/rotary_jit.py").read_text()
    assert export.version.digest in launcher
    assert export.verdicts[0].run in launcher
    assert run_exported_test(tree).startswith("10 passed"), "8 cases, a refusal, and the registration"


def test_drift_is_reported(made: MadeCampaign, tmp_path: Path, quiet: Any) -> None:
    tree = make_sglang_tree(tmp_path / "tree", python="python")
    assert "not exported" in SglangExport(campaign=made.campaign, root=tree).drift()[0]
    SglangExport(campaign=made.campaign, root=tree).apply()

    def drift() -> list[str]:
        return SglangExport(campaign=made.campaign, root=tree).drift()

    assert drift() == []
    copied = tree / "python/sglang/kernels/jit/csrc/diffusion/rotary/kernel.cc"
    copied.write_text(GOOD["kernel.cc"] + "// changed upstream\n")
    assert any("kernel.cc was edited" in line for line in drift())
    copied.unlink()
    assert any("kernel.cc is missing" in line for line in drift())
    SglangExport(campaign=made.campaign, root=tree).apply()
    assert drift() == [], "a new export repairs the copy"
    solution = made.campaign.solution / "kernel.cc"
    solution.write_text(GOOD["kernel.cc"] + "// a new idea\n")
    assert any("solution/ holds" in line for line in drift())
    solution.write_text(GOOD["kernel.cc"])


def test_what_cannot_be_exported_is_refused(made: MadeCampaign, tmp_path: Path) -> None:
    with pytest.raises(KernwrightError, match="no tree of SGLang"):
        SglangTree.at(tmp_path)
    tree = make_sglang_tree(tmp_path / "tree")
    with pytest.raises(KernwrightError, match="taken"):
        SglangExport(campaign=made.campaign, root=tree, name="taken").changes()
    with pytest.raises(KernwrightError, match="--domain sideways"):
        SglangExport(campaign=made.campaign, root=tree, domain="sideways").changes()
    theirs = tree / "sglang/kernels/jit/csrc/diffusion/rotary/kernel.cc"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("// not ours\n")
    with pytest.raises(ExistsAlready, match=r"kernel\.cc"):
        SglangExport(campaign=made.campaign, root=tree).apply()


@pytest.fixture(scope="module")
def in_triton(made: MadeCampaign, quiet: Any) -> MadeCampaign:
    """Continue the campaign with a version in Triton, which a CPU judges in the interpreter."""
    made.iterate(2, IN_TRITON, quiet, rows="g_B1*")
    return made


def test_a_triton_kernel_is_exported_with_its_test(in_triton: MadeCampaign, tmp_path: Path) -> None:
    tree = make_sglang_tree(tmp_path / "tree")
    SglangExport(campaign=in_triton.campaign, root=tree).apply()
    kernel = tree / "sglang/kernels/ops/diffusion/rope/rotary_kernel.py"
    assert kernel.read_text() == IN_TRITON["kernel.py"]
    assert run_exported_test(tree).startswith("10 passed")


STAND_INS = """
from pathlib import Path
from kernwright.baselines.sglang.stand_ins import install_sglang
install_sglang(Path({tree!r}))
"""


@pytest.mark.network
def test_the_patch_applies_to_the_published_wheel(in_triton: MadeCampaign, tmp_path: Path) -> None:
    """The registration is found through sglang's own registry, and its test runs in Triton's interpreter."""
    pip = [sys.executable, "-m", "pip", "-q"]
    subprocess.run([*pip, "download", "--no-deps", "-d", str(tmp_path), SGLANG], check=True)
    tree = tmp_path / "tree"
    (wheel,) = tmp_path.glob("sglang-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tree)
    subprocess.run([*pip, "install", "--target", str(tree), "msgspec"], check=True)
    apply_patch(tree, SglangExport(campaign=in_triton.campaign, root=tree).patch())
    assert run_exported_test(tree, STAND_INS.format(tree=str(tree))).startswith("10 passed")
