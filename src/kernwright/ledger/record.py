"""Record: one line of evidence, sealed with a hash and chained to the record before it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NoReturn

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kernwright.core.errors import LedgerError

HEADS = "heads"  # the name of the chain that lists the last record of every run
VERIFY = "run `kernwright ledger verify` to list all damage"
_RUN_ID = re.compile(r"[0-9]{8}T[0-9]{12}Z-[0-9a-f]{8}")


class UnreadableRecord(ValueError):
    """A line that does not parse as a record."""


def is_run_id(text: str) -> bool:
    """Return whether ``text`` has exactly the form of a run id. Run ids become file names, also for imported runs."""
    return _RUN_ID.fullmatch(text) is not None


def canonical_json(value: Any) -> str:
    """Return the one spelling of a value over which hashes are taken. Raises for NaN and values outside JSON."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def genesis(chain: str) -> str:
    """Return the ``prev`` of a chain's first record. It differs between chains, so that none can start with
    another chain's record."""
    return hashlib.sha256(f"kernwright ledger, chain {chain}".encode()).hexdigest()


class Record(BaseModel):
    """One line of evidence."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    run: str
    seq: int = Field(ge=0)
    kind: str = Field(min_length=1)
    time: str
    prev: str = Field(pattern=r"^[0-9a-f]{64}$")
    body: dict[str, Any]
    hash: str = Field(pattern=r"^[0-9a-f]{64}$")

    @classmethod
    def sealed(cls, run: str, seq: int, kind: str, prev: str, body: Mapping[str, Any]) -> Record:
        """Return a new record with its hash. The body passes through JSON, so that the hash covers what readers get."""
        try:
            plain = json.loads(canonical_json(dict(body)))
            now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
            draft = cls(run=run, seq=seq, kind=kind, time=now, prev=prev, body=plain, hash="0" * 64)
            return draft.model_copy(update={"hash": draft.content_hash()})
        except (TypeError, ValueError, RecursionError) as error:
            raise LedgerError(
                f"this {kind!r} record cannot be written as JSON: {error}",
                "give a kind and a body of plain JSON values: no NaN or infinity, tensors or other objects",
            ) from error

    def content_hash(self) -> str:
        """Return the hash of all other fields."""
        return _hash_of(*self._canonical_parts())

    def line(self) -> bytes:
        return _line_of(*self._canonical_parts(), self.hash)

    def is_as_written(self, line: bytes) -> bool:
        """Return whether ``line`` is byte for byte the output of :meth:`line`. Respelled JSON counts as an edit."""
        try:
            body, others = self._canonical_parts()  # once for both: a body may have megabytes
            return _line_of(body, others, self.hash) == line + b"\n" and _hash_of(body, others) == self.hash
        except (ValueError, RecursionError):  # Infinity and lone surrogates are never written.
            return False

    def _canonical_parts(self) -> tuple[str, str]:
        """Return the spelling of the body, and that of the other fields without the hash. In a line, whose keys are
        sorted, the body comes first, then the hash, then the others."""
        return canonical_json(self.body), canonical_json(self.model_dump(exclude={"body", "hash"}))


def _hash_of(body: str, others: str) -> str:
    return hashlib.sha256(f'{{"body":{body},{others[1:]}'.encode()).hexdigest()


def _line_of(body: str, others: str, hash_: str) -> bytes:
    return f'{{"body":{body},"hash":"{hash_}",{others[1:]}\n'.encode()


def parse_record(line: bytes) -> Record:
    """Parse one line. Its hash and its place in a chain are not checked."""
    try:
        return Record.model_validate(json.loads(line.decode(), parse_constant=_refuse_constant))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise UnreadableRecord(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    except (ValueError, RecursionError) as error:
        raise UnreadableRecord(str(error)) from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def read_chain(lines: Iterable[bytes], chain: str, label: str) -> list[Record]:
    """Return the records of a sound chain. A damaged chain raises LedgerError: it supports no conclusion.

    ``label`` names the file in messages.
    """
    records: list[Record] = []
    prev = genesis(chain)
    try:
        for seq, line in enumerate(lines):
            record = parse_record(line)
            if not record.is_as_written(line) or (record.run, record.seq, record.prev) != (chain, seq, prev):
                raise LedgerError(f"{label}:{seq + 1}: record {seq} differs from the record that was written", VERIFY)
            records.append(record)
            prev = record.hash
    except UnreadableRecord as error:
        raise LedgerError(f"{label}:{len(records) + 1}: unreadable record: {error}", VERIFY) from error
    return records
