"""Guard: compares all files that an agent must not change, before and after it ran, and restores them."""

from __future__ import annotations

import os
from pathlib import Path

from kernwright.campaign.agents.guard.agent_folder import GeneratedFiles, remove_unsafe
from kernwright.campaign.agents.guard.file_states import FileState
from kernwright.campaign.agents.guard.ledger_state import LedgerState
from kernwright.campaign.agents.guard.places import COMPILED, check_exists, compiled_folders, protected_places
from kernwright.campaign.agents.guard.protected import ProtectedState
from kernwright.campaign.campaign import Campaign
from kernwright.campaign.removal import remove


class Guard:
    """The state of all protected places when the guard was made."""

    def __init__(self, campaign: Campaign, with_walls: bool) -> None:
        check_exists(campaign)
        self._campaign = campaign
        self._places = [ProtectedState(place) for place in protected_places(campaign, with_walls)]
        self._ledger = LedgerState(campaign.ledger, campaign.name)
        self._generated = GeneratedFiles(campaign.agent_folder)
        self._roots = compiled_folders(campaign)
        self._compiled = _compiled_files(self._roots)

    def undo(self) -> list[str]:
        """Restore changed files, after all processes of the agent have ended. Return a sentence for each change."""
        found = [sentence for place in self._places for sentence in place.undo()]
        found += self._ledger.undo()
        found += remove_unsafe(self._campaign.agent_folder, self._campaign.solution)
        self._drop_compiled()
        return found

    def put_back_generated(self) -> list[str]:
        """Restore the generated files of the agent's folder. Return the names of those that had changed."""
        return self._generated.put_back()

    def _drop_compiled(self) -> None:
        """Remove Python files that were compiled meanwhile. This is not reported: any program may compile them."""
        for path, state in _compiled_files(self._roots).items():
            before = self._compiled.get(path)
            if before is None or not before.is_same(state):
                remove(path)


def _compiled_files(roots: list[Path]) -> dict[Path, FileState]:
    found: dict[Path, FileState] = {}
    for root in roots:
        for folder, folders, files in os.walk(root):
            folders[:] = [name for name in folders if name != ".git"]
            if Path(folder).name == COMPILED:
                paths = (Path(folder, name) for name in files)
                found |= {path: state for path in paths if (state := FileState.of(path, keep=False)) is not None}
    return found
