"""Every example of a candidate can be read, and the tuner can start from each that declares a space."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernwright.campaign.tuning.template import Template
from kernwright.tasks.candidate import load_candidate
from kernwright.tasks.catalog import find_task, list_tasks

FOLDERS = sorted(path.parent for path in Path(__file__).parents[2].glob("examples/candidates/*/candidate.toml"))
TUNED = [folder for folder in FOLDERS if (folder / "space.toml").exists()]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_an_example_implements_an_op_of_a_task(folder: Path) -> None:
    candidate = load_candidate(folder)
    assert any(candidate.file.op in find_task(name).ops for name in list_tasks())
    assert candidate.entry_file in candidate.sources


@pytest.mark.parametrize("folder", TUNED, ids=lambda folder: folder.name)
def test_the_source_has_the_defaults_of_the_space(folder: Path) -> None:
    template = Template.read(folder)
    assert template.current() == template.space.defaults
    assert template.space.allows(template.space.defaults)
    allowed = list(template.space.all_configurations(10_000))
    assert len(allowed) > 1
    for configuration in allowed[:: max(1, len(allowed) // 20)]:
        assert template.configuration_in(template.with_configuration(configuration, "")) == configuration
