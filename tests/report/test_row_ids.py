"""The legend of row ids."""

from __future__ import annotations

import pytest

from kernwright.report.row_ids import id_legend, unexplained
from kernwright.tasks.catalog import find_task, list_tasks


@pytest.mark.parametrize("name", list_tasks())
def test_every_part_of_a_production_row_is_explained_or_names_a_model(name: str) -> None:
    rows = find_task(name).select("production")
    assert {row.id: found for row in rows if (found := unexplained(row))} == {}


def test_the_legend_has_only_the_parts_that_occur() -> None:
    (row,) = (row for row in find_task("norm_scale_shift").rows if row.id == "plain_s8424_d3072_row-bf16")
    shown = [line.split("|")[1].strip(" `") for line in id_legend([row])[2:] if line.startswith("|")]
    assert shown == ["s4096", "d3072", "plain, res", "row-bf16"]
