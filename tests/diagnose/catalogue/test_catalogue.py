"""The catalogue of fast paths: the files that ship, files of a user, and what is wrong with a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernwright.core.errors import BadFile, BadFiles
from kernwright.core.registry import shipped_ops
from kernwright.diagnose.catalogue import own_paths
from kernwright.diagnose.catalogue.catalogue import read_catalogue, shipped_catalogue
from kernwright.diagnose.chain import OpCall, chain_patterns, find_chains
from kernwright.diagnose.hotspots.gpu_work import patterns_in_order

ENTRY = """
[[path]]
name = "mine.snake"
provider = "me"
about = "snake activation"
category = "activation"
kernels = ['snake_fwd']
spellings = ["mulB sin pow mulB addE"]
turn_on = "use my.snake"
source = "my package"
"""


def test_our_own_paths_are_in_step_with_the_registry() -> None:
    assert own_paths.OWN.read_text(encoding="utf-8") == own_paths.text(), "run the module that own.toml names"


def test_every_op_with_a_kernel_is_a_path_that_can_be_turned_on() -> None:
    own = {path.name: path for path in shipped_catalogue().paths if path.provider == "kernwright"}
    for name in ("norm_scale_shift", "residual_gate", "add_norm", "rms_norm"):
        path = own[f"kernwright.{name}"]
        assert path.state == "available"
        assert path.turn_on
        assert path.chains
    assert own["kernwright.qknorm_rope"].state == "definition"
    assert {name.removeprefix("kernwright.") for name in own if "." in name} <= set(shipped_ops())


def test_every_chain_has_a_path_that_can_be_turned_on() -> None:
    known = shipped_catalogue()
    for chain in {pattern.name for pattern in chain_patterns()}:
        assert any(path.state == "available" for path in known.replacing(chain)), chain


def test_a_user_adds_a_path_that_is_found_in_a_trace(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(ENTRY, encoding="utf-8")
    known = shipped_catalogue([file])
    calls = [OpCall(word, ()) for word in ["gemm", "mulB", "sin", "pow", "mulB", "addE", "gemm"]]
    (found,) = find_chains(calls, patterns_in_order(chain_patterns(), known.patterns))
    assert [path.name for path in known.replacing(found.pattern.name)] == ["mine.snake"]
    running = known.running("void snake_fwd<c10::BFloat16>(int)")
    assert running is not None
    assert running.name == "mine.snake"


def test_all_problems_of_all_files_are_told_at_once() -> None:
    wrong = ENTRY.replace("snake_fwd", "snake_(fwd").replace('"me"', '""')
    texts = {
        "a.toml": wrong,
        "b.toml": ENTRY.replace('["mulB sin pow mulB addE"]', '["sin?"]'),
        "c.toml": ENTRY + ENTRY,
        "d.toml": "[[path]\n",
        "e.toml": ENTRY + 'chains = ["norm_modulaton"]',
    }
    with pytest.raises(BadFiles) as caught:
        read_catalogue(texts)
    told = str(caught.value)
    for part in (
        "a.toml: path mine.snake.kernels.0: is not a regular expression",
        "a.toml: path mine.snake.provider",
        "b.toml: path mine.snake.spellings: the chain 'sin?' has no required word",
        "c.toml: path mine.snake: the name is used twice",
        "d.toml: is not TOML",
        "did you mean norm_modulation",
    ):
        assert part in told


@pytest.mark.parametrize(
    ("removed", "problem"),
    [
        ('turn_on = "use my.snake"\n', "has no `turn_on`"),
        ("kernels = ['snake_fwd']\nspellings = [\"mulB sin pow mulB addE\"]\n", "got none of them"),
        ('about = "snake activation"\n', "Field required"),
    ],
)
def test_an_entry_that_lacks_something_is_refused(removed: str, problem: str) -> None:
    with pytest.raises(BadFile, match=problem):
        read_catalogue({"mine.toml": ENTRY.replace(removed, "")})


@pytest.mark.parametrize(
    ("kernel", "path"),
    [
        ("void kernwright::(anonymous namespace)::held<...>(kernwright::Work)", "kernwright"),
        ("fused_moe_kernel", "serving.moe"),
        ("void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>", "vllm.fused_add_rms_norm"),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "nccl"),
        ("nvjet_sm100_tst_128x256_64x6_2x1_2cta_v_bz_TNT", "gemm"),
        ("Cijk_Alik_Bljk_BBS_BH_MT256x256x64_MI16x16x1", "gemm"),
        ("a_kernel_of_nobody", None),
    ],
)
def test_a_kernel_tells_the_path_that_runs(kernel: str, path: str | None) -> None:
    found = shipped_catalogue().running(kernel)
    assert (found.name if found else None) == path
