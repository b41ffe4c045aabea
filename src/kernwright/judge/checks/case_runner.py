"""CaseRunner: one worker's calls on the cases of a row, with one session for all cases of a size."""

from __future__ import annotations

import time

from kernwright.core.op import Op
from kernwright.judge.device.device import Device
from kernwright.judge.numerics.cases import Case
from kernwright.judge.numerics.inputs import Inputs
from kernwright.judge.process.faults import WorkerFailed
from kernwright.judge.process.worker_process import CALL_DEADLINE_S, WorkerProcess
from kernwright.judge.session.session import Outputs, Session, WrongBehaviour
from kernwright.tasks.candidate import Style


class CaseRunner:
    """Runs cases on one worker. `first_calls_s` is the time of the first call at each size, which may compile."""

    def __init__(self, device: Device, worker: WorkerProcess, op: Op, style: Style) -> None:
        self.device, self.worker, self.op, self.style = device, worker, op, style
        self.first_calls_s = 0.0
        self._session: Session | None = None

    def __call__(self, case: Case, inputs: Inputs) -> Outputs:
        is_first = self._session is None or self._session.row is not case.row
        if is_first:
            self.close()
            self._session = self.device.open_session(self.worker, self.op, case.row, self.style, slots=1)
        assert self._session is not None
        try:
            self._session.prepare()
            self._session.fill(0, inputs)
            started = time.monotonic()
            outputs = self._session.check_call(0, CALL_DEADLINE_S)
            self.first_calls_s += (time.monotonic() - started) * is_first
            return outputs
        except (WorkerFailed, WrongBehaviour) as cause:
            message, newline, frames = str(cause).partition("\n")
            cause.args = (f"{message} [{case.label}]{newline}{frames}",)
            raise

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None
