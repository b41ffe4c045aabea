"""The pipe: framed plain data from a peer that may send anything."""

from __future__ import annotations

import json
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernwright.judge.protocol.channel import Channel, ChannelClosed, ChannelGarbled, as_object
from kernwright.judge.protocol.frames import DONE, HEADER, JSON, MOST_BYTES, RUN

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture
def pair() -> Iterator[tuple[Channel, socket.socket]]:
    ours, theirs = socket.socketpair()
    yield Channel(ours), theirs
    ours.close()
    theirs.close()


Receive = Callable[[Channel, float], tuple[int, bytes]]


@pytest.fixture(params=["asleep", "awake"])
def receive(request: pytest.FixtureRequest) -> Receive:
    """Return a function for each of the two ways to wait for a frame."""
    return Channel.receive if request.param == "asleep" else lambda channel, s: channel.await_frame(s)[:2]


@given(st.dictionaries(st.text(max_size=6), plain, max_size=4))
def test_objects_arrive_as_they_were_sent(message: dict[str, object]) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        Channel(ours).send_json(message)
        assert Channel(theirs).receive_json(5.0) == message


def test_frames_keep_their_order_and_tags(pair: tuple[Channel, socket.socket], receive: Receive) -> None:
    channel, peer = pair
    other = Channel(peer)
    other.send(RUN, b"abc")
    other.send(DONE, b"")
    other.send_json({"a": 1})
    assert receive(channel, 5.0) == (RUN, b"abc")
    assert receive(channel, 5.0) == (DONE, b"")
    assert channel.receive_json(5.0) == {"a": 1}


def test_a_frame_may_arrive_in_pieces(pair: tuple[Channel, socket.socket], receive: Receive) -> None:
    channel, peer = pair
    frame = HEADER.pack(5, DONE) + b"hello"

    def drip() -> None:
        for byte in frame:
            peer.sendall(bytes([byte]))
            time.sleep(0.002)

    thread = threading.Thread(target=drip)
    thread.start()
    assert receive(channel, 5.0) == (DONE, b"hello")
    thread.join()


def test_large_frames_pass_both_ways(pair: tuple[Channel, socket.socket]) -> None:
    channel, peer = pair
    message = {"slots": ["x" * 1000] * 2000}
    sender = threading.Thread(target=Channel(peer).send_json, args=(message,))
    sender.start()
    assert channel.receive_json(5.0) == message
    sender.join()


def test_a_huge_frame_is_refused_before_it_is_read(pair: tuple[Channel, socket.socket], receive: Receive) -> None:
    channel, peer = pair
    peer.sendall(HEADER.pack(MOST_BYTES + 1, JSON))
    with pytest.raises(ChannelGarbled, match=str(MOST_BYTES + 1)):
        receive(channel, 5.0)


@pytest.mark.parametrize(
    "payload", [b"", b"{", b"\xff\xfe", b"[1]", b"7", b'"text"', b"null", b"[" * 100_000, b"{'a': 1}", b"1" * 5000]
)
def test_garbage_is_refused(pair: tuple[Channel, socket.socket], payload: bytes) -> None:
    channel, peer = pair
    peer.sendall(HEADER.pack(len(payload), JSON) + payload)
    with pytest.raises(ChannelGarbled):
        channel.receive_json(5.0)


def test_another_tag_is_no_object(pair: tuple[Channel, socket.socket]) -> None:
    channel, peer = pair
    payload = json.dumps({"a": 1}).encode()
    peer.sendall(HEADER.pack(len(payload), DONE) + payload)
    with pytest.raises(ChannelGarbled, match="tag"):
        channel.receive_json(5.0)


@pytest.mark.parametrize("sent", [b"", HEADER.pack(9, JSON)[:3], HEADER.pack(9, JSON), HEADER.pack(9, JSON) + b"half"])
def test_a_peer_that_goes_is_noticed(pair: tuple[Channel, socket.socket], receive: Receive, sent: bytes) -> None:
    channel, peer = pair
    peer.sendall(sent)
    peer.close()
    with pytest.raises(ChannelClosed):
        receive(channel, 5.0)


def test_a_worker_notices_that_the_judge_is_gone(pair: tuple[Channel, socket.socket]) -> None:
    channel, peer = pair
    peer.close()
    with pytest.raises(ChannelClosed):
        channel.receive_json_with_descriptors()


def test_sending_to_a_closed_peer_is_noticed(pair: tuple[Channel, socket.socket]) -> None:
    channel, peer = pair
    peer.close()
    with pytest.raises(ChannelClosed):
        for _ in range(3):
            channel.send_json({"a": "x" * 100_000})
    with pytest.raises(ChannelClosed):
        channel.send(RUN, b"abc")


def test_silence_ends_at_the_deadline(pair: tuple[Channel, socket.socket], receive: Receive) -> None:
    channel, _ = pair
    with pytest.raises(TimeoutError):
        receive(channel, 0.05)


def test_a_trickle_of_bytes_does_not_move_the_deadline(pair: tuple[Channel, socket.socket], receive: Receive) -> None:
    """Otherwise a peer that occasionally sends a byte could hold the judge for any time."""
    channel, peer = pair
    frame = HEADER.pack(20, DONE) + b"x" * 20
    done = threading.Event()

    def trickle() -> None:
        for byte in frame:
            if done.wait(0.05):
                return
            peer.sendall(bytes([byte]))

    thread = threading.Thread(target=trickle)
    thread.start()
    try:
        with pytest.raises(TimeoutError):
            receive(channel, 0.2)
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize("awake", [False, True])
def test_descriptors_travel_beside_a_frame(pair: tuple[Channel, socket.socket], awake: bool) -> None:
    channel, peer = pair
    other = Channel(peer)

    def received() -> tuple[int, bytes, list[int]]:
        return other.await_frame(5.0, most=4) if awake else other.receive_json_with_descriptors()

    read, write = os.pipe()
    channel.send_json({"do": "open_row", "filler": "y" * 300_00}, (write,))
    tag, payload, descriptors = received()
    assert (tag, as_object(payload)["do"]) == (JSON, "open_row")
    assert len(descriptors) == 1
    os.write(descriptors[0], b"through")
    assert os.read(read, 7) == b"through"
    for descriptor in (read, write, *descriptors):
        os.close(descriptor)
    channel.send(RUN, b"1234")
    assert received() == (RUN, b"1234", [])


def test_unexpected_descriptors_are_closed(pair: tuple[Channel, socket.socket], receive: Receive) -> None:
    """Otherwise a worker could fill the judge's table of open files."""
    channel, peer = pair
    read, write = os.pipe()
    Channel(peer).send_json({"a": 1}, (write,))
    os.close(write)
    receive(channel, 5.0)
    assert select.select([read], [], [], 5.0)[0], "the other end is still open somewhere"
    assert os.read(read, 1) == b""
    os.close(read)


def test_active_waiting_takes_whole_frames_and_leaves_the_rest(pair: tuple[Channel, socket.socket]) -> None:
    channel, peer = pair
    peer.sendall(HEADER.pack(2, DONE) + b"ab" + HEADER.pack(1, RUN)[:3])
    assert channel.await_frame(5.0) == (DONE, b"ab", [])
    peer.sendall(HEADER.pack(1, RUN)[3:] + b"c")
    assert channel.receive(5.0) == (RUN, b"c")
