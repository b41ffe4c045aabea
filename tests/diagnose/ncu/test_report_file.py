"""Reports of Nsight Compute: exports of a real H200, other locales, log lines, and files that are no report."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import pytest
from made_reports import CALM, raw_page

from kernwright.core.errors import KernwrightError
from kernwright.diagnose.ncu.report.profiled_kernel import ProfiledKernel
from kernwright.diagnose.ncu.report.report_file import MAGIC, read_report

EXPORTS = Path(__file__).parent / "exports"
DURATION = "gpu__time_duration.sum"
WAVES = "launch__waves_per_multiprocessor"


def written(folder: Path, text: str | bytes, name: str = "report.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def read(folder: Path, text: str | bytes) -> list[ProfiledKernel]:
    return read_report(written(folder, text))


def test_a_real_export_has_its_kernels_and_counters_in_base_units() -> None:
    kernels = read_report(EXPORTS / "raw.csv")
    assert [kernel.short_name for kernel in kernels] == [
        "fuse_scale_shift_kernel_blc_opt",
        "fuse_scale_shift_kernel_blc_opt",
        "_rotary_embedding_kernel",
        "at::vectorized_layer_norm_kernel",
    ]
    assert [kernel.grid for kernel in kernels] == [(2106, 3, 1), (5, 3, 1), (27030, 6, 1), (8424, 1, 1)]
    assert {(kernel.device, kernel.capability) for kernel in kernels} == {("NVIDIA H200", "9.0")}
    assert [kernel.value(DURATION) for kernel in kernels] == pytest.approx([26.4e-6, 3.36e-6, 126.144e-6, 40.096e-6])
    assert kernels[0].value("dram__bytes.sum.per_second") == pytest.approx(3.058308e12)
    assert kernels[3].value("launch__shared_mem_config_size") == 32768


def test_both_pages_of_one_capture_agree_on_every_counter_that_both_have() -> None:
    compared = set()
    for raw, details in zip(read_report(EXPORTS / "raw.csv"), read_report(EXPORTS / "details.csv"), strict=True):
        assert (raw.name, raw.grid, raw.block) == (details.name, details.grid, details.block)
        for metric, counter in details.counters.items():
            if metric in raw.counters:
                assert counter.value == pytest.approx(raw.counters[metric].value, rel=6e-3, abs=6e-3), counter
                assert counter.unit in ("", raw.counters[metric].unit) or not raw.counters[metric].unit
                compared.add(metric)
    assert len(compared) > 25


def test_other_locales_log_lines_and_repeated_tables_change_nothing(tmp_path: Path) -> None:
    text = (EXPORTS / "raw.csv").read_text()
    expected = read_report(EXPORTS / "raw.csv")
    german = re.sub(r'"(-?\d[\d,]*(?:\.\d+)?)"', lambda found: found[0].translate({44: ".", 46: ","}), text)
    assert german != text
    noise = "==PROF== Connected to process 7 (/usr/bin/python3)\nstep 1, loss 2,5\n"
    header, units, *lines = text.splitlines(keepends=True)
    chatty = [noise, header, units, lines[0], "==WARNING== a, b\n", "progress 50%\n", *lines[1:], "==PROF== Done\n"]
    for variant in (
        german.encode(),
        "".join(chatty).encode(),
        text.replace("\n", "\r\n").encode(),
        b"\xef\xbb\xbf" + text.encode(),
        text.encode("utf-16"),
    ):
        found = read(tmp_path, variant)
        assert [kernel.counters for kernel in found] == [kernel.counters for kernel in expected]
        assert [kernel.grid for kernel in found] == [kernel.grid for kernel in expected]
    assert len(read(tmp_path, "".join([header, units, *lines, header, units, *lines]))) == 2 * len(expected)


def test_old_unit_names_and_missing_metrics_are_read(tmp_path: Path) -> None:
    (one, two) = read(
        tmp_path,
        raw_page(
            [{DURATION: ("840", "nsecond"), WAVES: ("n/a", "")}, {DURATION: ("1,700", "nsecond"), WAVES: (3, "")}]
        ),
    )
    assert one.value(DURATION) == pytest.approx(840e-9) and two.value(DURATION) == pytest.approx(1.7e-6)
    assert one.value(WAVES) is None and two.value(WAVES) == 3


RAW = raw_page([CALM, CALM])
BROKEN = {
    "an empty file": ("", "empty"),
    "blank lines": ("\n \n", "empty"),
    "prose": ("no report at all\n", "Kernel Name"),
    "another program's table": ("Time (%),Name\n3,kernel\n", "Kernel Name"),
    "a page of source code": ('"#","Source","Samples"\n"1","LDG","3"\n', "source code"),
    "a summary": (RAW.replace('"ID"', '"Invocations"', 1), "print-summary"),
    "a page of other columns": ('"ID","Kernel Name","Body"\n"0","k","x"\n', "another page"),
    "a header alone": (RAW.splitlines()[0] + "\n", "no kernel"),
    "a line cut off between cells": (RAW[: RAW.rindex(',"')], "cut off"),
    "a line cut off within a cell": (RAW[:-4], "cut off"),
    "decimal points and decimal commas": (RAW.replace('"100.000000"', '"100,5"'), "decimal"),
    "only unknown counters": (raw_page([{"new__counter.sum": (1, "")}]), "new__counter.sum"),
    "an error of ncu": ("==ERROR== ERR_NVGPUCTRPERM - no permission\n", "ERR_NVGPUCTRPERM"),
    "a binary file": (b"\x7fELF\0\0\0", "binary"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_what_is_no_report_is_refused_with_one_reason(kind: str, tmp_path: Path) -> None:
    text, reason = BROKEN[kind]
    with pytest.raises(KernwrightError) as raised:
        read(tmp_path, text)
    assert reason in str(raised.value) and str(tmp_path) in str(raised.value)
    assert raised.value.remedy


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.csv", tmp_path):
        with pytest.raises(KernwrightError, match=path.name):
            read_report(path)


# A binary report goes through the installed ncu. This stand-in for it exports a stored page, or fails like ncu does.
STAND_IN = """#!/bin/sh
case "$1" in --version) echo "Version 2025.3.1.0 (build 1)"; exit 0;; esac
if grep -q newer "$2"; then echo "==ERROR== The report was made by a newer version" >&2; exit 1; fi
[ "$1 $3 $4 $5" = "--import --csv --page raw" ] && cat "{page}"
"""
# And for the Python module beside it, with the classes that Nsight Compute documents.
MODULE = """
class Metric:
    def __init__(self, value, unit): self._value, self._unit = value, unit
    def value(self): return self._value
    def unit(self): return self._unit
class Action:
    held = {"gpu__time_duration.sum": Metric(5250, "nsecond"), "launch__grid_dim_x": Metric(7, ""),
            "device__attribute_display_name": Metric("NVIDIA H200", ""), "odd": Metric(None, "")}
    def metric_names(self): return tuple(self.held)
    def metric_by_name(self, name): return self.held[name]
    def name(self, base): return base
class IAction:
    NameBase_DEMANGLED = "from_the_module<int>"
class Held:
    num_ranges = num_actions = lambda self: 1
    range_by_idx = lambda self, number: self
    action_by_idx = lambda self, number: Action()
def load_report(path): return Held()
"""


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = folder / "nsight" / "ncu"
    program.parent.mkdir(parents=True)
    program.write_text(STAND_IN.format(page=EXPORTS / "raw.csv"))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return program


def test_a_binary_report_is_read_through_the_installed_ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = install(tmp_path, monkeypatch)
    report = written(tmp_path, MAGIC + b"...", "run.ncu-rep")
    assert len(read_report(report)) == 4
    module = program.parent / "extras" / "python" / "ncu_report.py"
    module.parent.mkdir(parents=True)
    module.write_text(MODULE)
    (kernel,) = read_report(report)
    assert (kernel.name, kernel.grid, kernel.device) == ("from_the_module<int>", (7,), "NVIDIA H200")
    assert kernel.value(DURATION) == pytest.approx(5.25e-6)
    module.write_text("raise ImportError('built for another Python')")
    assert len(read_report(report)) == 4


def test_a_binary_report_that_cannot_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = written(tmp_path, MAGIC + b"newer", "run.ncu-rep")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("kernwright.diagnose.ncu.report.report_file.ncu_program", lambda: None)
    with pytest.raises(KernwrightError, match=r"ncu.*not found"):
        read_report(report)
    monkeypatch.undo()
    install(tmp_path, monkeypatch)
    with pytest.raises(KernwrightError, match="newer version"):
        read_report(report)
    with pytest.raises(KernwrightError, match="not one of Nsight Compute"):
        read_report(written(tmp_path, b"PK\x03\x04", "other.ncu-rep"))
