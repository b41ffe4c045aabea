"""HotspotTask: a task from a hotspot of a trace, with an op that is drafted from the trace's operators."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernwright.admission.captured_row import DraftRequest
from kernwright.admission.draft import Draft, draft_task
from kernwright.admission.op_draft import DEFINITIONS
from kernwright.admission.task_folder import write_task
from kernwright.core.errors import KernwrightError
from kernwright.core.registry import ops_from_file
from kernwright.diagnose.hotspots.ranking import diagnose
from kernwright.diagnose.recording import read_recording
from kernwright.diagnose.task_draft.hotspot_op import draft_op_of, hotspot_of


@dataclass(frozen=True, kw_only=True)
class HotspotTask:
    """A task to make from a hotspot.

    Attributes:
        hotspot: `TRACE:NUMBER`, a trace and the number of the hotspot in `kernwright hotspots`.
        op: the name of the drafted op; None for the name of the hotspot.
    """

    name: str
    hotspot: str
    op: str | None = None
    models: Sequence[str] = ()
    title: str = ""

    def write(self, place: Path, force: bool) -> tuple[Draft, Sequence[str]]:
        """Write the folder of the task. Return its draft and the notes on what the trace does not tell.

        Raises:
            KernwrightError: the hotspot does not exist, or no op can be drafted from it.
        """
        trace, colon, rank = self.hotspot.rpartition(":")
        if not colon or not trace:
            raise KernwrightError(
                f"--from-hotspot {self.hotspot}: is not of the form TRACE:NUMBER",
                "write it as in --from-hotspot trace.json.gz:3",
            )
        path = Path(trace)
        drafted = draft_op_of(hotspot_of(diagnose(read_recording(path)), rank), path, self.op)
        with tempfile.TemporaryDirectory() as temporary:
            definitions = Path(temporary) / DEFINITIONS
            definitions.write_text(drafted.text, encoding="utf-8")
            request = DraftRequest(
                name=self.name,
                source=path,
                call=drafted.call,
                op=ops_from_file(definitions)[drafted.name],
                mapping=drafted.mapping,
                models=tuple(self.models),
                title=self.title or f"{drafted.name}, a hotspot of {path.name}",
            )
            draft = draft_task(drafted.capture, request, DEFINITIONS)
            write_task(draft, place, definitions, force)
        return draft, drafted.notes
