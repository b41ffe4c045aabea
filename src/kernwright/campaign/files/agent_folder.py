"""AgentFolder: writes the generated files of a campaign's folder for agents."""

from __future__ import annotations

from pathlib import Path

from kernwright.campaign.campaign import Campaign
from kernwright.campaign.files import card, iterations_file, notes, reference
from kernwright.campaign.history import History
from kernwright.ledger.files import replacing


def write_generated_files(campaign: Campaign, history: History, avoid: tuple[str, ...]) -> None:
    """Write card, reference, notes and ITERATIONS.md. Files that have the right content stay as they are.

    Args:
        avoid: directions that the stop rules refuse now.
    """
    own = campaign.settings
    task = campaign.task()
    texts = {
        card.FILE: card.card_text(campaign, history, task, campaign.rows(), avoid),
        reference.FILE: reference.reference_file(task, own.op),
        notes.BASELINE_FILE: notes.baseline_text(history),
        notes.HINTS_FILE: notes.hints_text(own),
        iterations_file.FILE: iterations_file.iterations_text(history),
    }
    for name, text in texts.items():
        _write(campaign.agent_folder / name, text.encode())


def _write(path: Path, data: bytes) -> None:
    """Replace a file. A link of this name is replaced, not followed: an agent may have made it."""
    if path.is_symlink() or not path.is_file() or path.read_bytes() != data:
        with replacing(path) as stream:
            stream.write(data)
