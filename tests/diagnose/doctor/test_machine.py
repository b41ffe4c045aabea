"""The other checks of the doctor, each on files of a made machine."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kernwright.diagnose.doctor import storage
from kernwright.diagnose.doctor.counters import check_counters
from kernwright.diagnose.doctor.framework import check_torch, torch_cuda
from kernwright.diagnose.doctor.hub import check_hub
from kernwright.diagnose.doctor.sglang import check_sglang, sglang_root
from kernwright.diagnose.doctor.tool import TOOLS, check_tool, check_tools

ALL_CAPABILITIES = "000001ffffffffff"
NCU = next(tool for tool in TOOLS if tool.name == "ncu")


def proc(root: Path, params: str, capabilities: str = "0", users: str = "0 0 4294967295") -> Path:
    for name, text in (
        ("driver/nvidia/params", params),
        ("self/status", f"Name:\tx\nCapEff:\t{capabilities}\n"),
        ("self/uid_map", users + "\n"),
    ):
        path = root / "proc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("params", "capabilities", "users", "status"),
    [
        ("RmMsg: x\nRmProfilingAdminOnly: 0\n", "0", "0 0 4294967295", "ok"),
        ("RmProfilingAdminOnly: 1\n", "0", "0 0 4294967295", "problem"),
        ("NVreg_RestrictProfilingToAdminUsers: 1\n", "0", "0 0 4294967295", "problem"),
        ("RestrictProfilingToAdminUsers: 0\n", "0", "0 0 4294967295", "ok"),
        ("RmProfilingAdminOnly: 1\n", ALL_CAPABILITIES, "0 0 4294967295", "ok"),
        ("RmProfilingAdminOnly: 1\n", f"{1 << 38:x}", "0 0 4294967295", "ok"),
        ("RmProfilingAdminOnly: 1\n", f"{1 << 20:x}", "0 0 4294967295", "problem"),
        ("RmProfilingAdminOnly: 1\n", ALL_CAPABILITIES, "0 1000 1", "problem"),  # root of a container without root
        ("OtherOption: 1\n", "0", "0 0 4294967295", "warning"),
    ],
)
def test_the_permission_for_hardware_counters(
    tmp_path: Path, params: str, capabilities: str, users: str, status: str
) -> None:
    found = check_counters(True, proc(tmp_path, params, capabilities, users))
    assert found.status == status and (status == "ok" or found.remedy)


def test_no_counters_without_a_gpu(tmp_path: Path) -> None:
    assert check_counters(False, tmp_path).status == "missing"


def make_program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_the_latest_installation_of_a_tool_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    for version in ("2025.9.1", "2025.10.0", "2024.11.0"):
        make_program(
            tmp_path / f"opt/nvidia/nsight-compute/{version}/ncu", f"echo 'NVIDIA Nsight\nVersion {version}.0 (build)'"
        )
    found = check_tool(NCU, tmp_path)
    assert found.status == "ok" and found.details["version"] == "2025.10.0.0"
    on_path = make_program(tmp_path / "bin/ncu", "echo Version 9.9")
    monkeypatch.setenv("PATH", f"{on_path.parent}:/usr/bin:/bin")
    assert check_tool(NCU, tmp_path).details["path"] == str(on_path)
    make_program(on_path, "echo 'error while loading shared libraries: libx.so' >&2; exit 127")
    broken = check_tool(NCU, tmp_path)
    assert broken.status == "problem" and "libx.so" in broken.cause
    assert {each.check for each in check_tools(tmp_path)} == {"nvcc", "ncu", "nsys", "ninja"}


def test_folders_are_tried_by_writing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folders = {"good": tmp_path / "new" / "deep", "file": tmp_path / "file" / "below", "system": Path("/proc/self/x")}
    found = storage.check_folders(folders)
    assert found.status == "problem" and set(found.details["refused"]) == {"file", "system"}
    assert not (tmp_path / "new").exists() and [path.name for path in tmp_path.iterdir()] == ["file"]
    assert storage.check_folders({"good": tmp_path}).status == "ok"


def test_little_space_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = {"perf dumps": tmp_path, "model weights": tmp_path / "hub"}
    monkeypatch.setattr(storage, "LEAST_FREE", 1)
    monkeypatch.setattr(storage, "LOW_FREE", 1)
    assert storage.check_disk(folders).status == "ok"
    monkeypatch.setattr(storage, "LOW_FREE", 1 << 60)
    assert storage.check_disk(folders).status == "warning"
    assert storage.check_disk({"perf dumps": tmp_path}).status == "ok", "only weights need that much"
    monkeypatch.setattr(storage, "LEAST_FREE", 1 << 60)
    assert storage.check_disk(folders).status == "problem"


def test_sglang_is_found_without_an_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert (check_sglang().status, sglang_root()) == ("missing", None)
    package = tmp_path / "python" / "sglang"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(package.parent))
    assert sglang_root() == tmp_path
    assert "multimodal_gen" in check_sglang().cause
    (package / "multimodal_gen").mkdir()
    assert "PATH" in check_sglang().cause
    make_program(tmp_path / "bin" / "sglang", "exit 1")
    found = check_sglang()
    assert found.status == "ok" and found.details["root"] == str(tmp_path) and "sglang" not in sys.modules
    moved = tmp_path / "site-packages"
    package.parent.rename(moved)
    monkeypatch.syspath_prepend(str(moved))
    assert sglang_root() == moved / "sglang"


def test_gated_models_need_a_token_or_their_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    gated, home = {"flux": "lab/FLUX"}, {"HF_HOME": str(tmp_path)}
    missing = check_hub(gated, home)
    assert missing.status == "warning" and "HF_TOKEN" in missing.cause and "lab/FLUX" in missing.cause
    assert check_hub(gated, home | {"HF_TOKEN": "  "}).status == "warning"
    with_token = check_hub(gated, home | {"HF_TOKEN": "hf_secret"})
    assert with_token.status == "ok" and "hf_secret" not in str(with_token.as_json())
    (tmp_path / "token").write_text("hf_secret\n")
    assert check_hub(gated, home).status == "ok"
    (tmp_path / "token").unlink()
    snapshot = tmp_path / "hub/models--lab--FLUX/snapshots/1a2b"
    snapshot.mkdir(parents=True)
    assert check_hub(gated, home).status == "warning", "an interrupted download leaves an empty folder"
    (snapshot / "model_index.json").touch()
    assert check_hub(gated, home).status == "ok"


@pytest.mark.parametrize(
    ("line", "cuda"),
    [
        ("cuda: Optional[str] = '13.0'", "13.0"),
        ('cuda = "12.8"', "12.8"),
        ("cuda: _Optional[str] = None", ""),
        ("hip = None", None),
    ],
)
def test_the_cuda_version_of_torch_is_read_from_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, cuda: str | None
) -> None:
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    (package / "version.py").write_text(f"__version__ = '2.13.0'\ndebug = False\n{line}\ngit_version = 'x'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert torch_cuda() == cuda
    assert check_torch().details["folder"] == str(package)
