"""The ledger that belongs to a checkpointer: in memory beside an in-memory saver, a file beside a SQLite saver's file."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver

from langgraph_handoff.ledger.base import Ledger
from langgraph_handoff.ledger.memory import MemoryLedger
from langgraph_handoff.ledger.sqlite import SqliteLedger

__all__ = ("ENVIRONMENT", "aledger_for", "ledger_for", "ledger_path")

ENVIRONMENT: Final = "HANDOFF_LEDGER_URL"
"""Environment variable with the address of the ledger, for servers that bring their own checkpointer."""

_QUERY: Final = "SELECT file FROM pragma_database_list WHERE name = 'main'"
_beside: WeakKeyDictionary[Any, Ledger] = WeakKeyDictionary()
"""Saver → its ledger. Graphs that share a saver share its ledger, as they share its threads."""


def ledger_path(checkpoints: str | os.PathLike[str]) -> Path:
    """Return the ledger's file beside a checkpoint file: `cases.db` → `cases.ledger.db`."""
    path = Path(checkpoints)
    return path.with_name(f"{path.stem}.ledger{path.suffix or '.db'}")


def ledger_for(saver: Any) -> Ledger | None:
    """Return the ledger that belongs to `saver`; None when it is of a kind that is not known here."""
    if saver in _beside:
        return _beside[saver]
    if isinstance(saver, InMemorySaver):
        return _beside.setdefault(saver, MemoryLedger())
    if isinstance(saver, SqliteSaver):
        with saver.lock:
            row = saver.conn.execute(_QUERY).fetchone()
        return _beside.setdefault(saver, _opened(row))
    return None


async def aledger_for(saver: Any) -> Ledger | None:
    """Return the ledger that belongs to `saver`, also for an async SQLite saver."""
    connection = getattr(saver, "conn", None)
    if saver in _beside or connection is None or isinstance(connection, sqlite3.Connection):
        return ledger_for(saver)
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver  # noqa: PLC0415 (imports aiosqlite, which sync users do not need)

    if not isinstance(saver, AsyncSqliteSaver):
        return None
    await saver.setup()
    async with saver.conn.execute(_QUERY) as cursor:
        row = await cursor.fetchone()
    return _beside.setdefault(saver, _opened(row))


def _opened(row: Any) -> Ledger:
    return SqliteLedger(ledger_path(row[0])) if row and row[0] else MemoryLedger()
