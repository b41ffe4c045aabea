"""Published baselines: the content of their records, and the kernels that a census must show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fake_package import Shelf

from kernwright.baselines.lookup import find_baseline
from kernwright.baselines.published import IN_EVERY_WORKER, PublishedBaseline
from kernwright.core.digest import Source, digest_of
from kernwright.core.errors import EnvironmentProblem
from kernwright.core.registry import shipped_ops
from kernwright.packages.store import Store
from kernwright.packages.tree import Machine
from kernwright.tasks.catalog import find_task
from kernwright.tasks.workload import Workload

GPU_HOST = Machine(architecture="x86_64", python="3.12")
SGLANG = PublishedBaseline.find("sglang@0.5.23")


def test_the_record_names_package_wheel_file_function_and_kernels() -> None:
    about = SGLANG.about(["norm_scale_shift"])
    assert (about["package"], about["version"]) == ("sglang", "0.5.23")
    assert about["wheel_sha256"] == SGLANG.tree.wheels[0].sha256
    assert about["ops"]["norm_scale_shift"] == {
        "file": "sglang/kernels/ops/diffusion/norm/scale_residual_norm_cutedsl.py",
        "functions": ["sglang.kernels.ops.diffusion:fused_norm_scale_shift"],
        "kernels": SGLANG.table.adapters["norm_scale_shift"].kernels,
    }


def test_cutedsl_is_asked_for_only_where_a_kernel_needs_it() -> None:
    assert [tree.name for tree in SGLANG.trees(["rotary"], GPU_HOST)] == ["sglang-0.5.23", "msgspec"]
    assert [tree.name for tree in SGLANG.trees(["norm_scale_shift"], GPU_HOST)][-1] == "cutedsl"
    with pytest.raises(EnvironmentProblem, match=r"needs cutedsl, which is locked for Python 3\.12 on x86_64"):
        SGLANG.trees(["norm_scale_shift"], Machine(architecture="aarch64", python="3.12"))


def test_the_digest_covers_the_companions_and_leaves_others_alone() -> None:
    task = find_task("norm_scale_shift")
    sglang = find_baseline(task, "sglang@0.5.23")
    assert sglang.kind == "package" and sglang.wheel_sha256 and sglang.adapter_sha256
    other = sglang.model_copy(update={"companions": {"a.whl": "0"}})
    assert sglang.digest != other.digest
    eager = find_baseline(task, "eager")
    before = {"name": "eager", "kind": "eager", "package": "torch", "version": eager.version}
    assert eager.digest == digest_of({**before, "wheel_sha256": None, "adapter_sha256": None})


NAMES = ("sglang@0.5.23", "sglang@0.5.12.post1", "liger@0.8.5")


def files_in_the_hash(name: str, monkeypatch: pytest.MonkeyPatch, *ops: str) -> set[str]:
    read: list[str] = []
    with monkeypatch.context() as patched:
        patched.setattr(Source, "read", lambda path: read.append(path.name) or Source(".py", ""))
        assert PublishedBaseline.find(name).adapter_digest(ops)
    assert len(read) == len(set(read))
    return set(read)


def test_every_package_has_a_hash_of_its_own() -> None:
    assert len({PublishedBaseline.find(name).adapter_digest(["rms_norm"]) for name in NAMES}) == 3


@pytest.mark.parametrize("name", NAMES)
def test_everything_defined_before_an_op_counts_in_its_hash(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    every = PublishedBaseline.find(name)
    for op, adapter in every.table.adapters.items():
        read = files_in_the_hash(name, monkeypatch, op)
        every_worker = {Path(file).name for file in IN_EVERY_WORKER}
        assert {*every_worker, Path(adapter.bind.__code__.co_filename).name} <= read
        assert "package.py" in read or name.startswith("liger")


def test_definitions_before_other_ops_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "rotary.py" not in files_in_the_hash("sglang@0.5.23", monkeypatch, "rms_norm")
    assert "norms.py" not in files_in_the_hash("sglang@0.5.23", monkeypatch, "rotary")
    assert {"rotary.py", "norms.py"} <= files_in_the_hash("sglang@0.5.23", monkeypatch, "rotary", "rms_norm")


def test_an_adapters_code_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    known, op = SGLANG.table.adapters["rotary"], ["rotary"]
    before, declined = SGLANG.adapter_digest(op), SGLANG.adapter_digest(["copy_contiguous"])
    monkeypatch.setitem(SGLANG.table.adapters, "rotary", replace(known, functions=("other:function",)))
    monkeypatch.setitem(SGLANG.table.absent, "copy_contiguous", "another reason")
    assert SGLANG.adapter_digest(op) != before and SGLANG.adapter_digest(["copy_contiguous"]) != declined


def test_a_census_without_its_kernel_is_a_fallback() -> None:
    assert SGLANG.ran_else("rotary", ["_rotary_embedding_kernel"]) is None
    assert SGLANG.ran_else("rotary", ["Memset", "_rotary_embedding_kernel_0d1d"]) is None
    eager = SGLANG.ran_else("rotary", ["void at::native::elementwise_kernel<128, 2>"])
    assert eager and eager.startswith("ran void at::native::elementwise_kernel<128, 2> instead of")
    assert SGLANG.ran_else("rotary", []) == "ran nothing instead of _rotary_embedding_kernel"
    assert SGLANG.ran_else("rotary", None) == "left no census of what it ran"


def test_an_op_without_a_kernel_is_declined() -> None:
    op = shipped_ops()["norm_scale_shift"]
    row: Workload = find_task("norm_scale_shift").rows[0]
    liger = PublishedBaseline.find("liger@0.8.5")
    assert liger.declines(op, row, (9, 0)) == "liger@0.8.5 has no kernel of norm_scale_shift"


def test_a_baseline_that_is_not_fetched_says_how_to(
    copied_wheels: None, shelf: Shelf, lock_file: Callable[..., None], tmp_path: Path
) -> None:
    lock_file(shelf.tree("sglang", {"sglang/__init__.py": ""}))
    with pytest.raises(EnvironmentProblem, match="kernwright baseline fetch"):
        PublishedBaseline.find("sglang@1.0").orders(["rotary"], Store())
