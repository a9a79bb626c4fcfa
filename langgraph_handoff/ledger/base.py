"""What a ledger is: one row for each privileged operation, moved by compare-and-set along the WRITE table.

A ledger holds the approval itself. It does not believe the graph's state, and it forgets nothing when a thread is forked,
copied or rolled back. An operation is known by its content (see `identity_key`), not by a thread or a tool call.
"""

from __future__ import annotations

import abc
import functools
import hashlib
import json
import math
import os
import secrets
import socket
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from langgraph_handoff.errors import NotJsonError
from langgraph_handoff.plain import storable
from langgraph_handoff.threads import to_its_end

__all__ = (
    "CHANGES",
    "FIELDS",
    "Ledger",
    "Proposal",
    "WriteRecord",
    "attempt",
    "canonical_json",
    "digest_of",
    "identity_key",
    "json_copy",
    "owner_alive",
    "owner_token",
    "storable",
)

CHANGES: Final = frozenset(
    {
        "decision",
        "approver",
        "decided_at",
        "comment",
        "bare",
        "token",
        "started_at",
        "checkpoint_id",
        "result",
        "error",
        "finished_at",
    }
)
"""Fields that a move may set."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposal:
    """A write that is asked for."""

    key: str
    kind: str
    case_id: str
    tenant: str
    thread_id: str
    call_id: str
    agent: str
    tool: str
    args: dict[str, Any]
    reason: str
    expires_at: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class WriteRecord:
    """A row of the ledger. Times are Unix seconds."""

    op: str
    """Primary key: `key` and `seq`."""
    key: str
    """Identity of the write without its sequence number."""
    seq: int
    """Grows only when the same write is asked for again, by a call of its own."""
    state: str
    """A state of `lifecycle.WRITE`."""
    epoch: int
    """Grows when the question changes or an unknown write may be tried again."""
    kind: str
    case_id: str
    tenant: str
    thread_id: str
    call_id: str
    agent: str
    tool: str
    args: dict[str, Any]
    digest: str
    """Of tool and arguments: what a person was shown."""
    reason: str
    proposed_at: float
    expires_at: float | None
    decision: str | None = None
    approver: str | None = None
    decided_at: float | None = None
    comment: str | None = None
    bare: bool = False
    """Whether the decision named no request."""
    token: str | None = None
    """Process that carries the operation out; see `owner_token`."""
    started_at: float | None = None
    checkpoint_id: str | None = None
    """The thread's checkpoint from which the operation was begun; it was stored before."""
    result: Any | None = None
    error: str | None = None
    finished_at: float | None = None

    @property
    def request_id(self) -> str:
        """Name of the question that this row asks now. What became of a write is another question than whether it may be done."""
        return f"{self.op}.{self.epoch}" + (".unknown" if self.state == "unknown" else "")


class Ledger(abc.ABC):
    """A write ledger. Every method is atomic; the async twins do not block the loop."""

    @property
    @abc.abstractmethod
    def location(self) -> str:
        """Where the rows are, for messages."""

    @abc.abstractmethod
    def propose(self, proposal: Proposal, *, seq: int) -> tuple[WriteRecord, bool]:
        """Store a proposal once.

        Args:
            proposal: What is asked for.
            seq: Its sequence number among the operations of one key.

        Returns:
            The stored row, and whether the question in it is new: the row was made now, or a question that nobody had
            answered was replaced by another one (other arguments, or another call). A row in any other state is returned
            as it is.
        """

    @abc.abstractmethod
    def get(self, op: str) -> WriteRecord | None:
        """Return a row."""

    @abc.abstractmethod
    def records(
        self,
        *,
        case_id: str | None = None,
        key: str | None = None,
        call_id: str | None = None,
        thread_id: str | None = None,
        states: Collection[str] | None = None,
    ) -> list[WriteRecord]:
        """Return the rows that fit all given filters, in the order in which they were proposed."""

    def latest_checkpoint(self, thread_id: str) -> str | None:
        """Return the latest checkpoint of a thread from which an operation was begun; checkpoint ids sort by time."""
        return max((row.checkpoint_id for row in self.records(thread_id=thread_id) if row.checkpoint_id), default=None)

    @abc.abstractmethod
    def move(self, record: WriteRecord, event: str, **changes: Any) -> WriteRecord:
        """Move a row along the WRITE table, if it still is as `record` says.

        Args:
            record: The row as it was read.
            event: An event of `lifecycle.WRITE`.
            changes: Fields to set, among `CHANGES`.

        Raises:
            IllegalTransitionError: If the table does not have that move.
            LedgerConflictError: If somebody else moved the row first. Nothing was changed.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Give back what the ledger holds open; it opens again when it is used."""

    async def apropose(self, proposal: Proposal, *, seq: int) -> tuple[WriteRecord, bool]:
        """Store a proposal once; see `propose`."""
        return await to_its_end(functools.partial(self.propose, proposal, seq=seq))

    async def aget(self, op: str) -> WriteRecord | None:
        """Return a row."""
        return await to_its_end(functools.partial(self.get, op))

    async def arecords(self, **filters: Any) -> list[WriteRecord]:
        """Return the rows that fit all given filters; see `records`."""
        return await to_its_end(functools.partial(self.records, **filters))

    async def alatest_checkpoint(self, thread_id: str) -> str | None:
        """Return the latest checkpoint of a thread from which an operation was begun."""
        return await to_its_end(functools.partial(self.latest_checkpoint, thread_id))

    async def amove(self, record: WriteRecord, event: str, **changes: Any) -> WriteRecord:
        """Move a row; see `move`."""
        return await to_its_end(functools.partial(self.move, record, event, **changes))

    async def aclose(self) -> None:
        """Give back what the ledger holds open."""
        await to_its_end(self.close)

    def __enter__(self) -> Self:
        """Return the ledger."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close the ledger."""
        self.close()

    async def __aenter__(self) -> Self:
        """Return the ledger."""
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close the ledger."""
        await self.aclose()


FIELDS: Final = tuple(each.name for each in fields(WriteRecord))
"""Columns of a row, in their order."""


def canonical_json(value: Any) -> str:
    """Return one text for all spellings of the same JSON value: sorted keys, no spaces, `1.0` as `1`.

    Raises:
        NotJsonError: If the value is not JSON; NaN and infinities are not.
    """
    try:
        text = json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise NotJsonError(problem=str(error)) from None
    return storable(text)


def json_copy(value: Any) -> Any:
    """Return the value as it comes back from a file, sharing nothing with the caller's.

    Raises:
        NotJsonError: If the value is not JSON.
    """
    canonical_json(value)  # `json.dumps` alone would turn keys that are not texts into texts
    return json.loads(json.dumps(value, default=dict))


def _plain(value: Any) -> Any:
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        wrong = [key for key in value if not isinstance(key, str)]
        if wrong:
            raise TypeError(f"the key {wrong[0]!r} is not a text")
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def identity_key(*, tenant: str, case_id: str, tool: str, schema_version: int, identity: Mapping[str, Any]) -> str:
    """Return the key of a write: SHA-256 over the canonical JSON of what makes it this write and no other."""
    return _sha256([tenant, case_id, tool, schema_version, dict(identity)])


def digest_of(tool: str, args: Mapping[str, Any]) -> str:
    """Return the digest of what a person is shown."""
    return _sha256([tool, dict(args)])


def _sha256(value: Any) -> str:
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


_attempts: set[str] = set()
"""Tokens of the attempts that this process is at. A process that lives on may have failed between a claim and its end."""


def owner_token() -> str:
    """Return who carries an operation out: host, boot, process, when it started, and a nonce for the attempt."""
    pid = os.getpid()
    return ":".join((socket.gethostname(), _boot_id(), str(pid), _started(pid) or "?", secrets.token_hex(8)))


@contextmanager
def attempt() -> Iterator[str]:
    """Give an attempt its token; while the block runs, `owner_alive` says that its owner lives."""
    token = owner_token()
    _attempts.add(token)
    try:
        yield token
    finally:
        _attempts.discard(token)


def owner_alive(token: str) -> bool:
    """Return whether the attempt of a token may still be at work.

    A process on another host cannot be seen from here and counts as alive, since a guess could run a write twice. Of this
    very process it is known which attempts are at work.
    """
    parts = token.rsplit(":", 4)
    if len(parts) != 5:
        return False
    host, boot, pid, started, _ = parts
    if host != socket.gethostname():
        return True
    if boot != _boot_id() or not pid.isdecimal():
        return False
    now = _started(int(pid))
    if now is None or started not in (now, "?"):
        return False
    return int(pid) != os.getpid() or token in _attempts


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "?"


def _started(pid: int) -> str | None:
    """Return when a process started, in clock ticks since boot; "?" where the system does not tell; None if it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        if Path("/proc/self/stat").exists():
            return None
        if os.name == "nt":  # where signal 0 is Ctrl-C, not a question
            return "?"
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return None
        except OSError:
            pass
        return "?"
    after_name = stat.rpartition(")")[2].split()
    return None if after_name[0] in ("Z", "X") else after_name[19]
