"""The worker program: both sides run this same loop, in a process of their own.

It is not trusted once a candidate is loaded. The judge believes nothing that it says: it is told to run a block, it
answers, the judge stops it, reads the outputs out of its memory and takes the time itself.
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
    """Holds one side and the row that is open."""

    def __init__(
        self,
        channel: Channel,
        device: WorkerDevice,
        roams: frozenset[int] = frozenset(),
        blocks: BlockLoop | None = None,
    ) -> None:
        self.channel = channel
        self.device = device
        self.roams = roams  # the processors that it may compile on, beside others that do
        self.blocks = blocks
        self.side = SideOrders(kind="eager")  # until a side is loaded
        self.function: Callable[..., Any] | None = None
        self.call: Callable[[Any], Any] | None = None
        self.row_call: Any = None
        self.compiled_rows: dict[str, Any] = {}  # calls of torch.compile's rows, which take it long to make
        self.loop: Callable[[Any], list[Any]] | None = None
        self.arena: Any = None  # the bytes that slots lie in
        self.slots: list[list[Any]] = []
        self.handed_out: list[Sequence[int]] | None = []  # slots since they were last renewed; None: nobody knows
        self.kept: list[Any] = []
        self.held: list[Any] = []  # of earlier blocks, as the judge chose
        self.awake = False  # while it waits for the next block: waking up takes longer than many a call
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
        """Whatever foreign code raises becomes a message; the judge decides."""
        from kernwright.judge.worker.entry import SideProblem

        self.kept.clear()
        text = str(error) if isinstance(error, SideProblem) else f"{type(error).__name__}: {error}"
        self.channel.send_json(Failure(error=text[:MOST_ERROR_TEXT], kind=type(error).__name__).model_dump())

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
        """Away from the processor of timed blocks, where this side may: others compile there at the same time."""
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
        """What torch.compile has made is made once, whichever other rows and slots came in between."""
        from kernwright.judge.protocol.layout import ALIGNMENT
        from kernwright.judge.worker.entry import RowCall

        assert self.function is not None
        if self.side.kind != "compile":
            return RowCall(self.side, self.function, row, self.device.name)
        # A kernel that was compiled for an aligned address would have the others copied first.
        shapes = [place and [place.dtype, place.shape, place.strides, place.offset % ALIGNMENT] for place in plan]
        key = json.dumps([self.side.op, row.model_dump(), shapes])
        if key not in self.compiled_rows:
            self.compiled_rows[key] = RowCall(self.side, self.function, row, self.device.name)
        return self.compiled_rows[key]

    def open_loop(self) -> LoopAnswer:
        """Makes the loop without Python over the open row's slots, if this side has one."""
        from kernwright.judge.worker.loops import NoLoop

        self.let_go()
        self.note_handed_out(range(len(self.slots)))
        try:
            self.loop = self.device.loop(self.side, self.row_call, self.slots)
        except NoLoop as reason:
            return LoopAnswer(unavailable=str(reason))
        except Exception as error:  # a metric that cannot be had is no reason to fail the side
            return LoopAnswer(unavailable=f"no loop: {type(error).__name__}: {error}"[:300])
        return LoopAnswer()

    def check(self, message: Check) -> OutputPointers:
        """One untimed call whose outputs are looked at: their type, shape, dtype and layout."""
        assert self.call is not None
        with self.device.calls():
            result = self.call(self.slot_of(message.slot))
        self.channel.send_json(CALLED)  # what was built is built: from here on only the device is slow
        self.device.finish()
        if self.row_call.style == "writes":
            return OutputPointers(pointers=())
        tensors = self.row_call.check_outputs(result)
        self.kept.append(tensors)
        return OutputPointers(pointers=tuple(tensor.data_ptr() for tensor in tensors))

    def rehearse(self, message: Rehearse) -> Done:
        """One call that nobody looks at, for what a first call compiles."""
        assert self.call is not None
        with self.roaming():
            with self.device.calls():
                self.call(self.slot_of(message.slot))
            self.device.finish()
        return Done()

    def census(self, message: Census) -> LaunchedKernels:
        return self.device.census(self.call, self.slot_of(message.slot), self.side.op, message.profiled)

    def explain(self, message: Explain) -> ChosenImplementation:
        from kernwright.judge.worker.entry import implementation_of

        return implementation_of(self.side, self.slot_of(message.slot), self.row_call.scalars)

    def slot_of(self, slot: int) -> list[Any]:
        """The one that is asked for, to be handed to the side."""
        self.note_handed_out([slot])
        return self.slots[slot]

    def note_handed_out(self, slots: Sequence[int]) -> None:
        if self.handed_out is not None:
            self.handed_out.append(slots)

    def run_blocks(self) -> None:
        """Blocks for as long as nothing else is asked for, where there is a loop for them that is not Python's."""
        if self.blocks is None or self.call is None or self.awake:  # no worker of a CPU's stays awake
            return
        has_outputs = self.row_call.style != "writes" and bool(self.row_call.outputs)
        self.handed_out = None  # that loop tells nobody what it was asked for
        if not self.blocks.serve(self.call, self.slots, self.kept, has_outputs):
            for result in self.kept:
                self.addresses(result)  # which says what is wrong with it
            raise self.row_call.not_a_tensor(self.kept[-1])

    def run(self, payload: bytes) -> None:
        """One block: the calls that the judge asks for, in its order, then one answer when the device is idle."""
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
            if self.loop is not None:  # for no call too: what its launch takes is the protocol's
                kept += self.loop(order)
        else:
            self.note_handed_out(order)
            with self.device.calls():  # for no call too: what a block of none takes is what the protocol takes
                for index in order:
                    kept.append(call(slots[index]))
        pointers = array("Q")
        if self.row_call.style != "writes" and self.row_call.outputs:
            for result in kept[first:]:
                pointers.extend(self.addresses(result))
        self.device.finish()
        self.channel.send(DONE, pointers.tobytes())

    def addresses(self, result: Any) -> list[int]:
        """Where a call's outputs lie. Plain tensors only: anything else could still have its work to do."""
        tensors = result if type(result) is tuple or type(result) is list else (result,)
        for tensor in tensors:
            if type(tensor) is not self.tensor_type:
                raise self.row_call.not_a_tensor(tensor)
        return [tensor.data_ptr() for tensor in tensors]

    def prepare(self, message: Prepare) -> Done:
        """Before new contents arrive: lets go of old outputs, so that the next block finds warm memory. All but a few:
        a caller may hold what it was given for as long as it likes. And inputs are other tensors, though they lie where
        they did: what a side remembers of a tensor, no program would hand it a second time."""
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
        """Those that the side was handed. A loop without Python keeps those that it was made of, and shows it none."""
        known = range(len(self.slots)) if self.handed_out is None else {n for part in self.handed_out for n in part}
        for number in known:
            self.slots[number] = [None if tensor is None else tensor.detach() for tensor in self.slots[number]]
        self.handed_out = []

    def let_go(self) -> None:
        """Of all outputs, whoever chose them."""
        self.kept.clear()
        self.held.clear()


def with_own_storage(span: Any) -> Any:
    """The same bytes as a tensor by itself, as any program's inputs are. torch.compile takes inputs of one storage for
    views of each other, and where a call changes one of them it guards against that or gives up."""
    import torch

    storage = torch._C._construct_storage_from_data_pointer(span.data_ptr(), span.device, span.numel())
    return torch.empty(0, dtype=torch.uint8, device=span.device).set_(storage, 0, (span.numel(),), (1,))


def _open_windows() -> tuple[int, ...]:
    """Our memory and its map: a judge without the right to look into another user's process has these from us."""
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

    device = find_worker_device(orders.device)  # on all cores now, rather than on one core at the first row
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
