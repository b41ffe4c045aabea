"""Chrome trace files: read their events one at a time, so that a file of any size needs little memory."""

from __future__ import annotations

import codecs
import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from kernwright.core.errors import KernwrightError

CHUNK_BYTES = 1 << 20
LARGEST_EVENT_CHARS = 1 << 24  # an event that still does not parse with this much text is malformed
LONGEST_LITERAL = len("-Infinity")
GZIP_MAGIC = b"\x1f\x8b"

Event = dict[str, Any]
# Kineto writes some names unescaped. `strict=False` accepts control characters inside of strings.
_decode = json.JSONDecoder(strict=False).raw_decode
_space = re.compile(r"[ \t\r\n]*").match
RECORD_ONE = "give a Chrome trace, such as a file that torch.profiler's export_chrome_trace wrote"


class TraceError(KernwrightError):
    """A trace file that cannot be read or that lacks what a diagnosis needs."""


class ChromeTrace:
    """A trace file in Chrome's JSON format, plain or compressed with gzip.

    Iterating yields the events in the file's order. `header` holds the other top-level values, such as
    `deviceProperties`. It is complete only after the iteration, because a value may follow the events.

    Args:
        path: the file.
        progress: called with the share of the file that was read, between 0 and 1.

    Raises:
        TraceError: while iterating, if the file is missing, empty, truncated or not a trace.
    """

    def __init__(self, path: Path, progress: Callable[[float], None] | None = None) -> None:
        self.path = path
        self.header: dict[str, Any] = {}
        self.events_read = 0
        self._progress = progress

    def __iter__(self) -> Iterator[Event]:
        try:
            file = self.path.open("rb")
        except OSError as error:
            raise TraceError(f"cannot read the trace {self.path}: {error.strerror}", RECORD_ONE) from None
        with file:
            yield from self._events(_Text(self.path, file, self._progress))

    def _events(self, text: _Text) -> Iterator[Event]:
        opening = text.peek()
        if opening == "[":  # Chrome's array format, whose closing bracket is optional
            text.advance()
            yield from self._array(text, may_end_open=True)
        elif opening == "{":
            text.advance()
            yield from self._object(text)
        else:
            raise TraceError(f"{self.path} is {'empty' if not opening else 'not JSON'}", RECORD_ONE)

    def _object(self, text: _Text) -> Iterator[Event]:
        found = False
        while (char := text.peek()) != "}":
            if char == ",":
                text.advance()
                continue
            key = text.value(self.events_read)
            if text.peek() != ":" or not isinstance(key, str):
                raise text.malformed(self.events_read)
            text.advance()
            if key == "traceEvents" and text.peek() == "[":
                text.advance()
                yield from self._array(text, may_end_open=False)
                found = True
            else:
                self.header[key] = text.value(self.events_read)
        if not found:
            raise TraceError(f"{self.path} is not a trace: the JSON has no list of `traceEvents`", RECORD_ONE)

    def _array(self, text: _Text, may_end_open: bool) -> Iterator[Event]:
        while True:
            char = text.peek()
            if char == ",":
                text.advance()
            elif char == "]":
                text.advance()
                return
            elif not char and may_end_open:
                return
            else:
                event = text.value(self.events_read)
                if isinstance(event, dict):
                    self.events_read += 1
                    yield event


class _Text:
    """Decoded text of a file with a reading position. It holds one chunk and the event that crosses its end."""

    def __init__(self, path: Path, file: BinaryIO, progress: Callable[[float], None] | None) -> None:
        self.path = path
        self._file = file
        self._size = max(path.stat().st_size, 1)
        self._progress = progress
        compressed = file.read(2) == GZIP_MAGIC
        file.seek(0)
        self._bytes = cast("BinaryIO", gzip.GzipFile(fileobj=file)) if compressed else file
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._text = ""
        self._position = 0
        self._ended = False

    def peek(self) -> str:
        """Return the next character that is not white space, or an empty string at the end of the file."""
        while True:
            self._position = cast("re.Match[str]", _space(self._text, self._position)).end()
            if self._position < len(self._text):
                return self._text[self._position]
            if not self._more():
                return ""

    def advance(self) -> None:
        """Pass the character that `peek` returned."""
        self._position += 1

    def value(self, events_read: int) -> object:
        """Return the next JSON value. Raises TraceError if the file ends within it or it is malformed."""
        self.peek()
        while True:
            try:
                value, end = _decode(self._text, self._position)
            except json.JSONDecodeError as error:
                if self._is_malformed(error):
                    raise self.malformed(events_read) from None
            except RecursionError:
                raise self.malformed(events_read) from None
            else:
                if end < len(self._text) or self._ended:  # a number may continue in the next chunk
                    self._position = end
                    return cast("object", value)
            if self._ended:
                raise self._truncated(events_read)
            self._more()

    def _is_malformed(self, error: json.JSONDecodeError) -> bool:
        """Return False if more text could complete the value: the error is in the last characters of the text."""
        if len(self._text) - self._position > LARGEST_EVENT_CHARS:
            return True
        is_cut_off = error.msg.startswith("Unterminated") or error.pos >= len(self._text.rstrip()) - LONGEST_LITERAL
        return not is_cut_off

    def _more(self) -> bool:
        if self._ended:
            return False
        try:
            chunk = self._bytes.read(CHUNK_BYTES)
        except EOFError:
            raise TraceError(
                f"{self.path} is truncated: the gzip stream ends early",
                "copy the file again, or record the trace again and let the profiler finish writing it",
            ) from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise TraceError(f"{self.path} is damaged: {error}", "copy the file again") from None
        self._ended = not chunk
        self._text = self._text[self._position :] + self._decoder.decode(chunk, final=self._ended)
        self._position = 0
        if self._progress:
            self._progress(min(self._file.tell() / self._size, 1.0))
        return not self._ended

    def malformed(self, events_read: int) -> TraceError:
        start = self._text[self._position : self._position + 60]
        return TraceError(
            f"{self.path} is not valid JSON after event {events_read}, near {start!r}",
            "record the trace again; if a tool rewrote it, give the profiler's own file",
        )

    def _truncated(self, events_read: int) -> TraceError:
        return TraceError(
            f"{self.path} is truncated: it ends within the value after event {events_read}",
            "copy the file again, or record the trace again and let the profiler finish writing it",
        )
