"""What waits for a person, over all cases: the ledger knows which writes are not settled, the checkpoints what is asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from langgraph_handoff.beside import abeside, achosen_ledger, beside, chosen_ledger
from langgraph_handoff.desk import Desk
from langgraph_handoff.errors import CheckpointerMissingError, LedgerMissingError
from langgraph_handoff.ledger import Ledger, WriteRecord, owner_alive
from langgraph_handoff.trace import interrupts_in

__all__ = ("Pending", "apending", "pending")

_UNSETTLED: Final = ("proposed", "approved", "executing", "unknown")


class Source(Protocol):
    """What holds cases: a compiled graph, or what `connect` returned."""

    @property
    def checkpointer(self) -> Any:
        """Where the cases are."""

    @property
    def ledger(self) -> Ledger | None:
        """Where their writes are."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pending:
    """Something that waits. Times are Unix seconds."""

    kind: str
    """write, repeat, transfer or unknown: a question to answer with `decide`. unfinished: nothing is asked, but what was
    approved is not done; if no run is at work on the thread, `graph.invoke(None, config)` goes on with it."""
    request_id: str
    thread_id: str
    case_id: str
    agent: str
    tool: str
    args: dict[str, Any]
    reason: str
    asked_at: float
    expires_at: float | None
    request: Mapping[str, Any] | None
    """The question as screens get it; None for unfinished."""


def pending(source: Source, *, case_id: str | None = None) -> list[Pending]:
    """Return what waits for a person, or for somebody who goes on with a stopped run, the oldest first.

    Args:
        source: A compiled graph, or what `connect` returned.
        case_id: Only this case.

    Raises:
        CheckpointerMissingError: If the graph has no checkpointer of its own.
        LedgerMissingError: If no ledger belongs to it.
    """
    saver = _saver_of(source)
    ledger = _found(chosen_ledger(source.ledger, beside(saver)))
    rows = ledger.records(case_id=case_id, states=_UNSETTLED)
    stored = {thread: saver.get_tuple(_address(thread)) for thread in {row.thread_id for row in rows}}
    return _waiting(_own(source, rows), stored)


async def apending(source: Source, *, case_id: str | None = None) -> list[Pending]:
    """Return what waits for a person; the async twin of `pending`."""
    saver = _saver_of(source)
    ledger = _found(await achosen_ledger(source.ledger, await abeside(saver)))
    rows = await ledger.arecords(case_id=case_id, states=_UNSETTLED)
    stored = {thread: await saver.aget_tuple(_address(thread)) for thread in {row.thread_id for row in rows}}
    return _waiting(_own(source, rows), stored)


def _own(source: Source, rows: Iterable[WriteRecord]) -> list[WriteRecord]:
    """Return the rows of a graph's own tenant; storage shows everybody's."""
    desk = getattr(source, "desk", None)
    return [each for each in rows if not isinstance(desk, Desk) or each.tenant == desk.rules.tenant]


def _saver_of(source: Source) -> BaseCheckpointSaver[Any]:
    if not isinstance(source.checkpointer, BaseCheckpointSaver):
        raise CheckpointerMissingError
    return source.checkpointer


def _found(ledger: Ledger | None) -> Ledger:
    if ledger is None:
        raise LedgerMissingError(tool="any", location="-", problem="there is none")
    return ledger


def _address(thread_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}


def _waiting(rows: Iterable[WriteRecord], stored: Mapping[str, CheckpointTuple | None]) -> list[Pending]:
    asked = {thread: _questions(found) for thread, found in stored.items()}
    found = (_pending(row, asked[row.thread_id]) for row in rows)
    return [each for each in found if each is not None]


def _questions(stored: CheckpointTuple | None) -> dict[str, Mapping[str, Any]]:
    """Return the questions that a thread's latest checkpoint waits with, by request id."""
    shown = [each.value for each in interrupts_in(stored) if isinstance(each.value, Mapping) and "handoff" in each.value]
    return {value["handoff"]["request_id"]: value for value in shown}


def _pending(row: WriteRecord, asked: Mapping[str, Mapping[str, Any]]) -> Pending | None:
    """Return what a row waits for; None when nobody is needed: it is being carried out, or its question was dropped."""
    request = asked.get(row.request_id) if row.state in ("proposed", "unknown") else None
    if request is None and (row.state == "proposed" or (row.state == "executing" and owner_alive(row.token or ""))):
        return None
    return Pending(
        kind=request["handoff"]["kind"] if request else "unfinished",
        request_id=row.request_id,
        thread_id=row.thread_id,
        case_id=row.case_id,
        agent=row.agent,
        tool=row.tool,
        args=dict(row.args),
        reason=row.reason,
        asked_at=row.proposed_at,
        expires_at=row.expires_at,
        request=request,
    )
