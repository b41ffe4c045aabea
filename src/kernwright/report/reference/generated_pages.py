"""GeneratedPages: every page and plot that `kernwright wiki check --update` writes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kernwright.report.campaign.evidence_pages import FOLDER, campaign_files
from kernwright.report.campaign.failed_ideas import failed_idea_files
from kernwright.report.campaign.recorded_campaign import recorded_campaigns
from kernwright.report.reference.gpu_tables import gpu_files
from kernwright.report.reference.troubleshooting import troubleshooting_files
from kernwright.wiki.index import FAILED, INDEX_FILE, index_page
from kernwright.wiki.wiki import Wiki


def generated_pages(docs: Path) -> dict[Path, str]:
    """Return the text of every generated file below `docs`, by path, the index of the wiki last.

    The index lists the pages of the wiki that are on disk.
    """
    campaigns = recorded_campaigns(docs.parent)
    files = (
        gpu_files(docs)
        | troubleshooting_files(docs)
        | campaign_files(campaigns, docs)
        | failed_idea_files(campaigns, docs)
    )
    return files | {docs / "wiki" / INDEX_FILE: index_page(Wiki(docs / "wiki").pages)}


def left_over(docs: Path, files: Mapping[Path, str]) -> list[Path]:
    """Return pages of campaigns and of failed ideas whose records are gone."""
    made = [*(docs / FOLDER).glob("*"), *(docs / "wiki").glob(f"{FAILED}*.md")]
    return sorted(path for path in made if path not in files)
