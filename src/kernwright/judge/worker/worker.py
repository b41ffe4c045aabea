"""Worker: the program that both sides run, each in a process of its own.

It is not trusted once a candidate is loaded. The judge tells it to run a block, takes the time itself, stops the worker
and reads the outputs from its memory.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import socket
import sys
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kernwright.judge.protocol.channel import Channel, ChannelClosed
from kernwright.judge.protocol.frames import DONE, IS_AWAKE, RUN, STAYS_AWAKE, WITH_PYTHON, decode_block
from kernwright.judge.protocol.messages import (
    CALLED,
    Attach,
    Census,
    Check,
    ChosenImplementation,
    Done,
    Events,
    EventTime,
    Explain,
    Failure,
    LaunchedKernels,
    Load,
    LoopAnswer,
    OpenLoop,
    OpenRow,
    OutputPointers,
    Prepare,
    Ready,
    Rehearse,
    WorkerAnswer,
    decode_request,
)
from kernwright.judge.protocol.orders import RowSignature, SideOrders, TensorPlacement, WorkerOrders
from kernwright.judge.system.processors import processors_near
from kernwright.judge.system.sandbox import Sandbox
from kernwright.judge.worker.block_loop import BlockLoop
from kernwright.judge.worker.confine import confine, die_with, hold_processor, move_to
from kernwright.judge.worker.worker_device import WorkerDevice, find_worker_device

MOST_ERROR_TEXT = 4000
MOST_AWAKE_S = 2.0
MOST_DESCRIPTORS = 4


class Worker:
    """One side and the row that is open."""

    def __init__(
        self,
        channel: Channel,
        device: WorkerDevice,
        roams: frozenset[int] = frozenset(),
        blocks: BlockLoop | None = None,
    ) -> None:
        self.channel = channel
        self.device = device
        self.roams = roams  # processors that it may compile on next to other workers
        self.blocks = blocks
        self.side = SideOrders(kind="eager")  # until a side is loaded
        self.function: Callable[..., Any] | None = None
        self.call: Callable[[Any], Any] | None = None
        self.row_call: Any = None
        self.compiled_rows: dict[str, Any] = {}  # row calls that torch.compile made, by row and layout
        self.loop: Callable[[Any], list[Any]] | None = None
        self.arena: Any = None  # bytes of all slots
        self.slots: list[list[Any]] = []
        self.handed_out: list[Sequence[int]] | None = []  # slots used since they were renewed; None: unknown
        self.kept: list[Any] = []
        self.held: list[Any] = []  # outputs of earlier blocks that the judge chose
        self.awake = False  # True if it polls for the next block, because waking up takes longer than many calls
        from torch import Tensor

        self.tensor_type = Tensor

    def serve(self) -> None:
        while True:
            try:
                self.run_blocks()
            except Exception as error:
                self.report(error)
                continue
            tag, payload, descriptors = self.next_request()
            try:
                if tag == RUN:
                    self.run(payload)
                    continue
                answer = self.answer(payload, descriptors)
            except Exception as error:
                self.report(error)
            else:
                self.channel.send_json(answer.model_dump())

    def answer(self, payload: bytes, descriptors: list[int]) -> WorkerAnswer:
        """Carry out a request other than a block and return the answer to it."""
        match decode_request(payload):
            case Attach() as attach:
                return self.device.attach(attach, descriptors)
            case Load() as load:
                return self.load(load)
            case OpenRow() as open_row:
                return self.open_row(open_row, descriptors)
            case OpenLoop():
                return self.open_loop()
            case Prepare() as prepare:
                return self.prepare(prepare)
            case Check() as check:
                return self.check(check)
            case Rehearse() as rehearse:
                return self.rehearse(rehearse)
            case Census() as census:
                return self.census(census)
            case Explain() as explain:
                return self.explain(explain)
            case Events():
                return EventTime(ns=self.device.event_ns())

    def report(self, error: Exception) -> None:
        """Send an error of foreign code to the judge, which decides what it means."""
        from kernwright.judge.worker.entry import SideProblem
        from kernwright.judge.worker.side_frames import side_frames

        self.kept.clear()
        text = str(error) if isinstance(error, SideProblem) else f"{type(error).__name__}: {error}"
        failure = Failure(error=text[:MOST_ERROR_TEXT], kind=type(error).__name__, frames=side_frames(error, self.side))
        self.channel.send_json(failure.model_dump())

    def next_request(self) -> tuple[int, bytes, list[int]]:
        if self.awake:
            with contextlib.suppress(TimeoutError):
                return self.channel.await_frame(MOST_AWAKE_S, most=MOST_DESCRIPTORS)
        return self.channel.receive_json_with_descriptors(MOST_DESCRIPTORS)

    def load(self, message: Load) -> Done:
        from kernwright.judge.worker.entry import load

        self.side = message.side
        with self.roaming():
            self.function = load(self.side)
        return Done()

    @contextlib.contextmanager
    def roaming(self) -> Iterator[None]:
        """Leave the processor of timed blocks for a while, if this side may. Other workers compile at the same time."""
        pinned = os.sched_getaffinity(0)
        if self.roams:
            move_to(set(self.roams))
        try:
            yield
        finally:
            if self.roams:
                move_to(pinned)

    def open_row(self, message: OpenRow, descriptors: list[int]) -> Done:
        import torch

        from kernwright.tasks.tensor import TORCH_NAMES

        self.let_go()
        self.slots, self.call, self.loop, self.arena = [], None, None, None
        self.handed_out = []
        raw = self.arena = self.device.open(descriptors[0], message.bytes)
        apart = self.side.kind == "compile" and message.changes_inputs

        def tensor(slot: int, place: TensorPlacement | None) -> Any:
            if place is None:
                return None
            dtype = getattr(torch, TORCH_NAMES[place.dtype])
            last = sum((n - 1) * s for n, s in zip(place.shape, place.strides, strict=True))
            start = slot * message.pitch + place.offset
            span = raw[start : start + (last + 1) * dtype.itemsize]
            own = with_own_storage(span) if apart else span
            return own.view(dtype).as_strided(place.shape, place.strides)

        self.slots = [[tensor(slot, place) for place in message.plan] for slot in range(message.slots)]
        self.row_call = self.call_of_row(message.row, message.plan)
        self.call = self.row_call.bind()
        return Done()

    def call_of_row(self, row: RowSignature, plan: Sequence[TensorPlacement | None]) -> Any:
        """Return the call of a row. Those of torch.compile are kept, whatever rows are opened in between."""
        from kernwright.judge.protocol.layout import ALIGNMENT
        from kernwright.judge.worker.entry import RowCall

        assert self.function is not None
        if self.side.kind != "compile":
            return RowCall(self.side, self.function, row, self.device.name)
        # A kernel compiled for an aligned address copies inputs at other addresses first.
        shapes = [place and [place.dtype, place.shape, place.strides, place.offset % ALIGNMENT] for place in plan]
        key = json.dumps([self.side.op, row.model_dump(), shapes])
        if key not in self.compiled_rows:
            self.compiled_rows[key] = RowCall(self.side, self.function, row, self.device.name)
        return self.compiled_rows[key]

    def open_loop(self) -> LoopAnswer:
        """Make the loop without Python over the slots of the open row, if this side has one."""
        from kernwright.judge.worker.loops import NoLoop

        self.let_go()
        self.note_handed_out(range(len(self.slots)))
        try:
            self.loop = self.device.loop(self.side, self.row_call, self.slots)
        except NoLoop as reason:
            return LoopAnswer(unavailable=str(reason))
        except Exception as error:  # a missing metric is no failure of the side
            return LoopAnswer(unavailable=f"no loop: {type(error).__name__}: {error}"[:300])
        return LoopAnswer()

    def check(self, message: Check) -> OutputPointers:
        """Make one untimed call and check the type, shape, dtype and layout of its outputs."""
        assert self.call is not None
        with self.device.calls():
            result = self.call(self.slot_of(message.slot))
        self.channel.send_json(CALLED)  # builds are over; only the device may be slow from here on
        self.device.finish()
        if self.row_call.style == "writes":
            return OutputPointers(pointers=())
        tensors = self.row_call.check_outputs(result)
        self.kept.append(tensors)
        return OutputPointers(pointers=tuple(tensor.data_ptr() for tensor in tensors))

    def rehearse(self, message: Rehearse) -> Done:
        """Make one unchecked call, so that the compilation of a first call is over."""
        assert self.call is not None
        with self.roaming():
            with self.device.calls():
                self.call(self.slot_of(message.slot))
            self.device.finish()
        return Done()

    def census(self, message: Census) -> LaunchedKernels:
        return self.device.census(self.call, self.slot_of(message.slot), self.side.op, message.source)

    def explain(self, message: Explain) -> ChosenImplementation:
        from kernwright.judge.worker.entry import implementation_of

        return implementation_of(self.side, self.slot_of(message.slot), self.row_call.scalars)

    def slot_of(self, slot: int) -> list[Any]:
        """Return a slot for the side to work on, and note that the side has seen it."""
        self.note_handed_out([slot])
        return self.slots[slot]

    def note_handed_out(self, slots: Sequence[int]) -> None:
        if self.handed_out is not None:
            self.handed_out.append(slots)

    def run_blocks(self) -> None:
        """Run blocks with the native loop until another kind of request arrives."""
        if self.blocks is None or self.call is None or self.awake:  # on a CPU no worker stays awake
            return
        has_outputs = self.row_call.style != "writes" and bool(self.row_call.outputs)
        self.handed_out = None  # the native loop does not report which slots it used
        if not self.blocks.serve(self.call, self.slots, self.kept, has_outputs):
            for result in self.kept:
                self.addresses(result)  # raises an error that names the problem
            raise self.row_call.not_a_tensor(self.kept[-1])

    def run(self, payload: bytes) -> None:
        """Run one block: make the calls in the judge's order and answer once the device is idle."""
        call, slots, kept = self.call, self.slots, self.kept
        assert call is not None
        flags, order = decode_block(payload)
        self.awake = bool(flags & STAYS_AWAKE)
        first = len(kept)
        if not flags & IS_AWAKE:
            self.device.begin()
        if not flags & WITH_PYTHON:
            if order:
                assert self.loop is not None
            if self.loop is not None:  # also for a block without calls: the launch is overhead of the protocol
                kept += self.loop(order)
        else:
            self.note_handed_out(order)
            with self.device.calls():  # also for a block without calls, which measures the overhead of the protocol
                for index in order:
                    kept.append(call(slots[index]))
        pointers = array("Q")
        if self.row_call.style != "writes" and self.row_call.outputs:
            for result in kept[first:]:
                pointers.extend(self.addresses(result))
        self.device.finish()
        self.channel.send(DONE, pointers.tobytes())

    def addresses(self, result: Any) -> list[int]:
        """Return the addresses of a call's outputs, which must be plain tensors: others could compute lazily."""
        tensors = result if type(result) is tuple or type(result) is list else (result,)
        for tensor in tensors:
            if type(tensor) is not self.tensor_type:
                raise self.row_call.not_a_tensor(tensor)
        return [tensor.data_ptr() for tensor in tensors]

    def prepare(self, message: Prepare) -> Done:
        """Free old outputs before new contents arrive, so that the next block finds warm memory.

        A few outputs are kept, as any caller may keep them. Inputs become new tensor objects at the same addresses: no
        program passes the same tensor object with new contents, so nothing may be cached by it.
        """
        if self.row_call is not None:
            self.row_call.check_again(self.kept)
        so_far = [*self.held, *self.kept]
        self.held = [so_far[place] for place in message.hold]
        self.kept.clear()
        del so_far
        self.renew_slots()
        self.device.reclaim()
        return Done()

    def renew_slots(self) -> None:
        """Replace the tensors of slots that the side has seen. A loop without Python keeps its own and shows none."""
        known = range(len(self.slots)) if self.handed_out is None else {n for part in self.handed_out for n in part}
        for number in known:
            self.slots[number] = [None if tensor is None else tensor.detach() for tensor in self.slots[number]]
        self.handed_out = []

    def let_go(self) -> None:
        """Free all outputs, also those that the judge chose to keep."""
        self.kept.clear()
        self.held.clear()


def with_own_storage(span: Any) -> Any:
    """Return the same bytes as a tensor with its own storage, like the inputs of any program.

    torch.compile treats inputs of one storage as views of each other. If a call changes one of them, it adds guards or
    gives up.
    """
    import torch

    storage = torch._C._construct_storage_from_data_pointer(span.data_ptr(), span.device, span.numel())
    return torch.empty(0, dtype=torch.uint8, device=span.device).set_(storage, 0, (span.numel(),), (1,))


def _open_windows() -> tuple[int, ...]:
    """Open this process's memory and its map, for a judge without the right to read another user's process."""
    try:
        return tuple(os.open(f"/proc/self/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in ("mem", "maps"))
    except OSError:
        return ()


def live(descriptor: int, judge: int, orders: WorkerOrders) -> None:
    """Run the worker from the fork to its end. Nothing foreign has run in this process, and it has one thread."""
    die_with(judge)
    channel = Channel(socket.socket(fileno=descriptor))
    sandbox = Sandbox.from_argument(orders.sandbox)
    isolation = confine(sandbox, judge)
    import torch

    device = find_worker_device(orders.device)  # initialised before the worker is pinned
    beside: frozenset[int] = frozenset()
    if orders.roams and orders.processor is not None:
        beside = frozenset(processors_near(orders.processor))
    hold_processor(sandbox, orders.processor, isolation, orders.roams)
    torch.set_num_threads(orders.threads)
    torch.set_grad_enabled(False)
    gc.collect()
    gc.freeze()
    gc.disable()  # a collection inside one side's block would be charged to that side
    blocks = BlockLoop(orders.block_loop, descriptor) if orders.block_loop else None
    windows = _open_windows()
    channel.send_json(Ready(isolation=isolation).model_dump(), windows)
    for window in windows:
        os.close(window)
    try:
        Worker(channel, device, beside, blocks).serve()
    except ChannelClosed:
        sys.exit(0)
