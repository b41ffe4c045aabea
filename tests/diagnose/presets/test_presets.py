"""Presets: those of the package, those of a user, and what is said about a wrong file."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernwright.core.errors import BadFiles, KernwrightError
from kernwright.diagnose.presets.catalog import find_preset, list_presets, load_preset

MODELS = [
    "flux", "flux2", "hunyuanvideo", "ltx2", "ltx23-one-stage", "ltx23-two-stage", "qwen", "qwen-edit", "wan-t2v",
    "wan-ti2v", "zimage",
]  # fmt: skip
OWN = """
title = "A model of mine"
model = "me/mine"
[request]
prompt = "a hill"
width = 512
height = 256
steps = 4
guidance = 1.5
[sglang]
states = ["width", "guidance"]
flags = ["--tp-size=2"]
"""


def test_the_package_has_the_models_of_the_benchmark() -> None:
    assert set(MODELS) <= set(list_presets())


@pytest.mark.parametrize("name", MODELS)
def test_a_tiny_version_keeps_the_structure_of_its_preset(name: str) -> None:
    _, preset = find_preset(name)
    tiny = preset.shrunk()
    assert preset.diffusers is not None and tiny.diffusers is not None
    assert tiny.request.width < preset.request.width and tiny.request.steps <= preset.request.steps
    for key, component in preset.diffusers.components.items():
        small = tiny.diffusers.components[key]
        assert small.class_name == component.class_name and set(component.config) <= set(small.config)
        for layers in component.layers:
            assert 1 <= small.config[layers] < component.config[layers]


def test_the_arguments_of_sglang_are_those_of_its_own_benchmark() -> None:
    _, flux = find_preset("flux")
    assert flux.sglang_model == "black-forest-labs/FLUX.1-dev"
    assert flux.sglang_arguments() == [
        "--width=1024", "--height=1024", "--num-gpus=2", "--tp-size=2", "--component-residency=dit=resident",
    ]  # fmt: skip
    _, ltx = find_preset("ltx23-one-stage")
    assert ltx.request.negative_prompt is not None
    assert ltx.sglang_arguments() == [
        f"--negative-prompt={ltx.request.negative_prompt}",
        "--width=768", "--height=512", "--num-frames=121", "--fps=24", "--num-inference-steps=30",
        "--guidance-scale=3.0", "--num-gpus=2",
    ]  # fmt: skip


def test_a_users_preset_is_found_by_folder_and_by_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(OWN)
    assert find_preset(str(path))[1].sglang_arguments() == ["--width=512", "--guidance-scale=1.5", "--tp-size=2"]
    monkeypatch.setenv("KERNWRIGHT_PRESETS", str(tmp_path))
    name, preset = find_preset("mine")
    assert (name, preset.sglang_model) == ("mine", "me/mine")
    with pytest.raises(KernwrightError) as caught:
        find_preset("quen-edit")
    assert "did you mean qwen-edit" in caught.value.remedy and "mine" in caught.value.remedy


def test_all_errors_of_a_file_are_reported_at_once(tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(
        OWN.replace("steps = 4", "step = 4").replace('"guidance"', '"colour"').replace("height = 256", "height = 0")
        + '[diffusers]\npipeline = "P"\nguidance = "none"\ncomponents = {}\n'
    )
    with pytest.raises(BadFiles) as caught:
        load_preset(path)
    said = [problem.cause for problem in caught.value.problems]
    for field in ("request.step:", "request.steps:", "request.height:", "sglang.states.1:", "diffusers"):
        assert any(field in cause for cause in said), field
    assert f"{path}:7: request.height" in "".join(said)


def test_a_wrong_tiny_table_is_an_error_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(OWN + "[tiny.request]\nsteps = 0\n")
    with pytest.raises(KernwrightError, match=r"with \[tiny\], request.steps"):
        load_preset(path)
