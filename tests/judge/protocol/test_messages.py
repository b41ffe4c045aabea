"""Messages survive encoding and decoding, and messages that no honest worker sends are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kernwright.judge.protocol.channel import ChannelGarbled
from kernwright.judge.protocol.isolation import Isolation
from kernwright.judge.protocol.messages import (
    Attach,
    Census,
    Check,
    ChosenImplementation,
    Done,
    Events,
    EventTime,
    Explain,
    Fork,
    LaunchedKernel,
    LaunchedKernels,
    Load,
    LoopAnswer,
    OpenLoop,
    OpenRow,
    OutputPointers,
    Prepare,
    Ready,
    RegionAddress,
    Rehearse,
    Request,
    WorkerAnswer,
    decode_answer,
    decode_request,
)
from kernwright.judge.protocol.orders import RowSignature, SideOrders, TensorPlacement, WorkerOrders
from kernwright.tasks.tensor import ConcreteTensor

PLACEMENT = TensorPlacement(offset=256, shape=(4, 8), strides=(8, 1), dtype="bf16")
ROW = RowSignature(
    inputs=("x", "w"),
    outputs=(ConcreteTensor(shape=(4, 8), dtype="fp32", strides=(8, 1)),),
    scalars={"eps": 1e-6, "limit": float("inf"), "flag": True, "name": None},
    style="returns",
)
REQUESTS: list[Request] = [
    Attach(bytes=2**40, pool="/pool.so"),
    Load(side=SideOrders(kind="candidate", op="axpy", language="cpp", paths=("/a", "/b"))),
    OpenRow(bytes=512, slots=2, pitch=256, plan=(PLACEMENT, None), row=ROW, changes_inputs=True),
    OpenLoop(),
    Prepare(hold=(0, 3)),
    Check(slot=1),
    Rehearse(slot=0),
    Census(slot=0, source="graph"),
    Explain(slot=0),
    Events(),
]
ANSWERS: list[WorkerAnswer] = [
    Done(),
    Ready(isolation=Isolation(missing=["seccomp: a test"])),
    RegionAddress(region=2**40),
    LoopAnswer(),
    LoopAnswer(unavailable="python code"),
    OutputPointers(pointers=(0, 2**64 - 1)),
    LaunchedKernels(kernels=(LaunchedKernel(name="add", stream=7, count=2),)),
    ChosenImplementation(backend="triton", contract="exact", refused=("cuda: too old",)),
    EventTime(ns=0),
]


def travelled(message: Request | WorkerAnswer | Fork) -> bytes:
    return json.dumps(message.model_dump()).encode()


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request.do)
def test_a_request_arrives_as_it_was_sent(request_: Request) -> None:
    assert decode_request(travelled(request_)) == request_


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: type(answer).__name__)
def test_an_answer_arrives_as_it_was_sent(answer: WorkerAnswer) -> None:
    assert decode_answer(type(answer), json.loads(travelled(answer))) == answer


def test_the_orders_of_a_worker_travel_to_the_zygote() -> None:
    fork = Fork(environment={"A": "1"}, folder="/scratch", orders=WorkerOrders(threads=1, sandbox="{}", device="cpu"))
    assert Fork.model_validate_json(travelled(fork)) == fork


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (OutputPointers, {}),
        (OutputPointers, {"pointers": None}),
        (OutputPointers, {"pointers": ["here"]}),
        (OutputPointers, {"pointers": [True]}),
        (OutputPointers, {"pointers": [1.0]}),
        (OutputPointers, {"pointers": [-1]}),
        (OutputPointers, {"pointers": [2**64]}),
        (LoopAnswer, {"unavailable": 5}),
        (LaunchedKernels, {"kernels": "abc"}),
        (LaunchedKernels, {"kernels": [None]}),
        (LaunchedKernels, {"kernels": [{"name": "k", "stream": 7}]}),
        (LaunchedKernels, {"kernels": [{"name": "k", "stream": "7", "count": 1}]}),
        (ChosenImplementation, {"backend": "cuda", "contract": "exact"}),
        (ChosenImplementation, {"backend": "cuda", "contract": "exact", "refused": [[]]}),
        (EventTime, {"ns": "5"}),
        (RegionAddress, {"region": None}),
    ],
)
def test_malformed_messages_of_a_worker_are_refused(kind: type[WorkerAnswer], message: dict[str, Any]) -> None:
    with pytest.raises(ChannelGarbled, match=kind.__name__):
        decode_answer(kind, message)


def test_text_of_a_worker_is_made_printable() -> None:
    assert decode_answer(LoopAnswer, {"unavailable": "\ud800\x1b[2Jfast"}).unavailable == "??[2Jfast"


def test_an_unknown_field_of_an_order_is_refused() -> None:
    with pytest.raises(ValueError, match="extra"):
        SideOrders(kind="eager", wheel="x")  # type: ignore[call-arg]
