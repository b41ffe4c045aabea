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
import struct
import sys
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kernwright.judge.protocol.channel import (
    DONE,
    IS_AWAKE,
    RUN,
    STAYS_AWAKE,
    WITH_PYTHON,
    Channel,
    ChannelClosed,
    as_object,
)
from kernwright.judge.system.processors import processors_near
from kernwright.judge.system.sandbox import Sandbox
from kernwright.judge.worker.block_loop import BlockLoop
from kernwright.judge.worker.confine import confine, die_with, hold_processor, move_to

MOST_ERROR_TEXT = 4000
MOST_AWAKE_S = 2.0
MOST_DESCRIPTORS = 4


class Worker:
    """Holds one side and the row that is open."""

    def __init__(
        self, channel: Channel, device: Any, roams: frozenset[int] = frozenset(), blocks: BlockLoop | None = None
    ) -> None:
        self.channel = channel
        self.device = device
        self.roams = roams  # the processors that it may compile on, beside others that do
        self.blocks = blocks
        self.side: dict[str, Any] = {}
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
        handlers = {
            "attach": self.device.attach,
            "load": self.load,
            "open_row": self.open_row,
            "open_loop": self.open_loop,
            "prepare": self.prepare,
            "check": self.check,
            "rehearse": self.rehearse,
            "census": self.census,
            "explain": self.explain,
            "events": lambda *_: {"ns": self.device.event_ns()},
        }
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
                message = as_object(payload)
                answer = handlers[message["do"]](message, descriptors)
            except Exception as error:
                self.report(error)
            else:
                self.channel.send_json(answer or {"ok": True})

    def report(self, error: Exception) -> None:
        """Whatever foreign code raises becomes a message; the judge decides."""
        from kernwright.judge.worker.entry import SideProblem

        self.kept.clear()
        text = str(error) if isinstance(error, SideProblem) else f"{type(error).__name__}: {error}"
        self.channel.send_json({"error": text[:MOST_ERROR_TEXT], "kind": type(error).__name__})

    def next_request(self) -> tuple[int, bytes, list[int]]:
        if self.awake:
            with contextlib.suppress(TimeoutError):
                return self.channel.await_frame(MOST_AWAKE_S, most=MOST_DESCRIPTORS)
        return self.channel.receive_json_with_descriptors(MOST_DESCRIPTORS)

    def load(self, message: dict[str, Any], _: list[int]) -> dict[str, Any]:
        from kernwright.judge.worker.entry import load

        self.side = message["side"]
        with self.roaming():
            self.function = load(self.side)
        return {"ok": True}

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

    def open_row(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        import torch

        from kernwright.tasks.tensor import TORCH_NAMES

        self.let_go()
        self.slots, self.call, self.loop, self.arena = [], None, None, None
        self.handed_out = []
        raw = self.arena = self.device.open(descriptors[0], message["bytes"])
        apart = self.side["kind"] == "compile" and message["changes_inputs"]

        def tensor(slot: int, place: dict[str, Any] | None) -> Any:
            if place is None:
                return None
            dtype = getattr(torch, TORCH_NAMES[place["dtype"]])
            last = sum((n - 1) * s for n, s in zip(place["shape"], place["strides"], strict=True))
            start = slot * message["pitch"] + place["offset"]
            span = raw[start : start + (last + 1) * dtype.itemsize]
            own = with_own_storage(span) if apart else span
            return own.view(dtype).as_strided(place["shape"], place["strides"])

        self.slots = [[tensor(slot, place) for place in message["plan"]] for slot in range(message["slots"])]
        self.row_call = self.call_of_row(message["row"], message["plan"])
        self.call = self.row_call.bind()
        return {"ok": True}

    def call_of_row(self, row: dict[str, Any], plan: list[dict[str, Any] | None]) -> Any:
        """What torch.compile has made is made once, whichever other rows and slots came in between."""
        from kernwright.judge.protocol.layout import ALIGNMENT
        from kernwright.judge.worker.entry import RowCall

        assert self.function is not None
        if self.side["kind"] != "compile":
            return RowCall(self.side, self.function, row, self.device.name)
        # A kernel that was compiled for an aligned address would have the others copied first.
        shapes = [
            place and [place["dtype"], place["shape"], place["strides"], place["offset"] % ALIGNMENT] for place in plan
        ]
        key = json.dumps([self.side["op"], row, shapes])
        if key not in self.compiled_rows:
            self.compiled_rows[key] = RowCall(self.side, self.function, row, self.device.name)
        return self.compiled_rows[key]

    def open_loop(self, _: dict[str, Any], __: list[int]) -> dict[str, Any]:
        """Makes the loop without Python over the open row's slots, if this side has one."""
        from kernwright.judge.worker.loops import NoLoop

        self.let_go()
        self.note_handed_out(range(len(self.slots)))
        try:
            self.loop = self.device.loop(self.side, self.row_call, self.slots)
        except NoLoop as reason:
            return {"unavailable": str(reason)}
        except Exception as error:  # a metric that cannot be had is no reason to fail the side
            return {"unavailable": f"no loop: {type(error).__name__}: {error}"[:300]}
        return {"ok": True}

    def check(self, message: dict[str, Any], _: list[int]) -> dict[str, Any]:
        """One untimed call whose outputs are looked at: their type, shape, dtype and layout."""
        assert self.call is not None
        with self.device.calls():
            result = self.call(self.slot_of(message))
        self.channel.send_json({"called": True})  # what was built is built: from here on only the device is slow
        self.device.finish()
        if self.row_call.style == "writes":
            return {"pointers": []}
        tensors = self.row_call.check_outputs(result)
        self.kept.append(tensors)
        return {"pointers": [tensor.data_ptr() for tensor in tensors]}

    def rehearse(self, message: dict[str, Any], _: list[int]) -> dict[str, Any]:
        """One call that nobody looks at, for what a first call compiles."""
        assert self.call is not None
        with self.roaming():
            with self.device.calls():
                self.call(self.slot_of(message))
            self.device.finish()
        return {"ok": True}

    def census(self, message: dict[str, Any], _: list[int]) -> dict[str, Any]:
        op = str(self.side.get("op"))
        found: dict[str, Any] = self.device.census(self.call, self.slot_of(message), op, message["profiled"])
        return found

    def explain(self, message: dict[str, Any], _: list[int]) -> dict[str, Any]:
        from kernwright.judge.worker.entry import implementation_of

        return implementation_of(self.side, self.slot_of(message), self.row_call.scalars)

    def slot_of(self, message: dict[str, Any]) -> list[Any]:
        """The one that is asked for, to be handed to the side."""
        self.note_handed_out([message["slot"]])
        return self.slots[message["slot"]]

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
        flags, *order = struct.unpack(f"<{len(payload) // 2}H", payload)
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

    def prepare(self, message: dict[str, Any], _: list[int]) -> dict[str, Any]:
        """Before new contents arrive: lets go of old outputs, so that the next block finds warm memory. All but a few:
        a caller may hold what it was given for as long as it likes. And inputs are other tensors, though they lie where
        they did: what a side remembers of a tensor, no program would hand it a second time."""
        if self.row_call is not None:
            self.row_call.check_again(self.kept)
        so_far = [*self.held, *self.kept]
        self.held = [so_far[place] for place in message.get("hold", ())]
        self.kept.clear()
        del so_far
        self.renew_slots()
        self.device.reclaim()
        return {"ok": True}

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


def live(
    descriptor: int, judge: int, processor: int, threads: int, sandbox: str, device: str, roams: bool = False,
    block_loop: str = "",
) -> None:  # fmt: skip
    """From the fork to the end. Nothing foreign has run in this process, and it has one thread."""
    die_with(judge)
    channel = Channel(socket.socket(fileno=descriptor))
    orders = Sandbox.from_argument(sandbox)
    isolation = confine(orders, judge)
    import torch

    from kernwright.judge.worker.worker_device import find_worker_device

    worker_device = find_worker_device(device)  # on all cores now, rather than on one core at the first row
    beside = frozenset(processors_near(processor)) if roams and processor >= 0 else frozenset()
    hold_processor(orders, processor if processor >= 0 else None, isolation, roams)
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    gc.collect()
    gc.freeze()
    gc.disable()  # a collection inside one side's block would be charged to that side
    blocks = BlockLoop(block_loop, descriptor) if block_loop else None
    windows = _open_windows()
    channel.send_json({"ready": True, "isolation": isolation.as_message()}, windows)
    for window in windows:
        os.close(window)
    try:
        Worker(channel, worker_device, beside, blocks).serve()
    except ChannelClosed:
        sys.exit(0)
