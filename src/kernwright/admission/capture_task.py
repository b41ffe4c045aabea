"""CaptureTask: a task from a capture file, for an op that ships, an op of a definitions file, or a drafted op."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernwright.admission.captured_row import DraftRequest
from kernwright.admission.draft import Draft, draft_task
from kernwright.admission.op_draft import DEFINITIONS, OpDraft, draft_op
from kernwright.admission.task_folder import write_task
from kernwright.admission.unmapped_arguments import refuse_another_op, refuse_unmapped_arguments
from kernwright.capture.capture import Capture, read_capture
from kernwright.capture.own_ops import op_of, settings_of, target_of
from kernwright.core.errors import BadFile, ExistsAlready, KernwrightError, did_you_mean
from kernwright.core.op import Op
from kernwright.core.registry import ops_from_file, shipped_ops


@dataclass(frozen=True, kw_only=True)
class CaptureTask:
    """A task to make from a capture file.

    Attributes:
        op: the op that the captured function computes; with `drafted_call`, the name of the drafted op.
        drafted_call: the captured function from which an op is drafted; None for an op that exists.
        call: the captured function, if the file has several.
        pairs: `NAME=ARGUMENT`, tensors, scalars or outputs of the op with another name in the call.
        ignored: arguments that do not affect results.
        definitions: the file that defines the op, if it does not ship.
    """

    name: str
    source: Path
    op: str | None = None
    drafted_call: str | None = None
    call: str | None = None
    pairs: Sequence[str] = ()
    ignored: Sequence[str] = ()
    models: Sequence[str] = ()
    title: str = ""
    definitions: Path | None = None

    def write(self, place: Path, force: bool) -> tuple[Draft, OpDraft | None]:
        """Write the folder of the task. Return its draft, and that of the op if it was drafted.

        Raises:
            KernwrightError: an option is wrong, or no task can be made of the calls.
        """
        if self.drafted_call is not None and (self.definitions is not None or self.call is not None):
            raise KernwrightError(
                "--draft-op was given with --definitions or --call", "leave --definitions and --call out"
            )
        if self.drafted_call is None and self.op is None:
            raise KernwrightError(
                "no op is given", "give --op NAME for an op of Kernwright, or --draft-op MODULE:FUNCTION for your own"
            )
        capture = read_capture(self.source)
        if self.drafted_call is None:
            draft = self._draft(capture, str(self.op), self.call, self.pairs, self.definitions)
            write_task(draft, place, self.definitions, force)
            return draft, None
        with _drafted_op(capture, self.source, self.drafted_call, self.op, self.name) as (drafted, definitions):
            pairs = [*(f"{own}={argument}" for own, argument in drafted.mapping.items()), *self.pairs]
            draft = self._draft(capture, drafted.op, drafted.call, pairs, definitions)
            write_task(draft, place, definitions, force)
        return draft, drafted

    def _draft(
        self, capture: Capture, op: str, call: str | None, pairs: Sequence[str], definitions: Path | None
    ) -> Draft:
        ops = ops_from_file(definitions) if definitions else shipped_ops()
        if op not in ops:
            remedy = "" if definitions else "; for a function of your own, --draft-op MODULE:FUNCTION"
            known = f"use one of: {', '.join(sorted(ops))}{remedy}"
            raise KernwrightError(f"--op {op}: no such op", did_you_mean(op, ops, known))
        called = _called(capture, self.source, call, op)
        request = DraftRequest(
            name=self.name,
            source=self.source,
            call=called,
            op=ops[op],
            mapping=_mapping(pairs, ops[op]),
            models=tuple(self.models),
            title=self.title,
            settings=settings_of(ops[op]) if op_of(called) == op else {},
        )
        draft = draft_task(capture, request, definitions.name if definitions else None)
        refuse_unmapped_arguments(capture, request, self.ignored)
        if call is None and definitions is None:
            refuse_another_op(request)
        return draft


@contextlib.contextmanager
def _drafted_op(capture: Capture, source: Path, call: str, op: str | None, name: str) -> Iterator[tuple[OpDraft, Path]]:
    """Draft an op and write its definitions file into a temporary folder.

    If the task cannot be made from the draft, the file is kept for the user to correct.
    """
    draft = draft_op(capture, call, op, source)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / DEFINITIONS
        path.write_text(draft.text, encoding="utf-8")
        try:
            yield draft, path
        except KernwrightError as error:
            kept = Path(f"{name}_{DEFINITIONS}")
            if kept.exists() or isinstance(error, ExistsAlready):
                raise
            kept.write_text(draft.text, encoding="utf-8")
            maps = "".join(f" --map {own}={argument}" for own, argument in draft.mapping.items())
            again = f"kernwright task new {name} --from {source} --definitions {kept} --op {draft.op}{maps}"
            cause = error.cause.replace(str(path), str(kept))
            raise KernwrightError(
                f"{cause}\n  the draft of the op is in {kept}", f"correct {kept}, then: {again}"
            ) from error


def _called(capture: Capture, source: Path, call: str | None, op: str) -> str:
    """Return the function whose calls become rows: the named one, the only one, or the op's own public call."""
    known = sorted({captured.call for captured in capture.calls})
    if call is None and len(known) == 1:
        return known[0]
    if call is None and target_of(op) in known:
        return target_of(op)
    if call in known:
        return call
    problem = "holds calls of several functions" if call is None else f"holds no call of {call}"
    if not known:
        problem = "holds no calls"
    raise BadFile(source, "call", problem, f"--call with one of: {', '.join(known) or '(none: capture again)'}")


def _mapping(pairs: Sequence[str], op: Op) -> dict[str, str]:
    """Return pairs `NAME=ARGUMENT` by name. Raise KernwrightError for a name that the op does not have."""
    known = [*(parameter.name for parameter in op.tensor_parameters), *op.scalar_defaults, *op.outputs]
    found = {}
    for pair in pairs:
        name, equals, argument = pair.partition("=")
        if not equals or not argument:
            raise KernwrightError(f"--map {pair}: is not NAME=ARGUMENT", "write it as in --map x=hidden_states")
        if name not in known:
            raise KernwrightError(f"--map {pair}: {op.name} has no {name}", f"it has: {', '.join(known)}")
        found[name] = argument
    return found
