"""What stands beside a checkpointer: its write ledger and its leases, in memory, in files next to its own, or in its database."""

from __future__ import annotations

import asyncio
import functools
import os
import sqlite3
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver

from langgraph_handoff.lease import FileLeases, Leases, MemoryLeases
from langgraph_handoff.ledger import Ledger, MemoryLedger, SqliteLedger, open_ledger

__all__ = ("Beside", "abeside", "achosen_ledger", "beside", "chosen_ledger", "ledger_path", "locks_path", "put_beside")

ENVIRONMENT: Final = "HANDOFF_LEDGER_URL"
"""Environment variable with the address of the ledger, for servers that bring their own checkpointer."""
_QUERY: Final = "SELECT file FROM pragma_database_list WHERE name = 'main'"


@dataclass(frozen=True, slots=True)
class Beside:
    """The ledger and the leases that belong to a checkpointer."""

    ledger: Ledger | None
    """None where no ledger would live as long as the checkpoints do."""
    leases: Leases


_known: WeakKeyDictionary[Any, Beside] = WeakKeyDictionary()
"""Graphs that share a saver share what is beside it, as they share its threads."""


def ledger_path(checkpoints: str | os.PathLike[str]) -> Path:
    """Return the ledger's file beside a checkpoint file: `cases.db` → `cases.ledger.db`."""
    path = Path(checkpoints)
    return path.with_name(f"{path.stem}.ledger{path.suffix or '.db'}")


def locks_path(checkpoints: str | os.PathLike[str]) -> Path:
    """Return the folder of locks beside a checkpoint file: `cases.db` → `cases.locks`."""
    path = Path(checkpoints)
    return path.with_name(f"{path.stem}.locks")


def beside(saver: Any) -> Beside | None:
    """Return what stands beside `saver`; None when it is of a kind that is not known here."""
    if isinstance(saver, InMemorySaver):
        # A server's memory may be kept in files and outlive the process, and a ledger in memory with it would not.
        lasting = type(saver.storage) is not defaultdict
        return _known.get(saver) or _known.setdefault(saver, Beside(None if lasting else MemoryLedger(), MemoryLeases()))
    if isinstance(saver, SqliteSaver):
        return _known.get(saver) or _known.setdefault(saver, _placed(_file_of(saver)))
    if _is_postgres(saver):
        return _known.get(saver) or _of_postgres(saver)
    return _known.get(saver) if _is_async_sqlite(saver) else None


async def abeside(saver: Any) -> Beside | None:
    """Return what stands beside `saver`, also for the host's async SQLite saver."""
    if _is_postgres(saver) and saver not in _known:
        return await asyncio.to_thread(beside, saver)  # the first time it imports more of psycopg
    if not _is_async_sqlite(saver) or saver in _known:
        return beside(saver)
    await saver.setup()
    async with saver.conn.execute(_QUERY) as cursor:
        row = await cursor.fetchone()
    return _known.setdefault(saver, _placed(row[0] if row else None))


def chosen_ledger(own: Ledger | None, near: Beside | None) -> Ledger | None:
    """Return a graph's own ledger, else the one that the environment names, else the one beside its checkpointer."""
    address = os.environ.get(ENVIRONMENT)
    return own or (_shared_ledger(address) if address else near.ledger if near else None)


async def achosen_ledger(own: Ledger | None, near: Beside | None) -> Ledger | None:
    """Return the ledger of a graph without blocking the loop; see `chosen_ledger`."""
    if address := os.environ.get(ENVIRONMENT):
        await asyncio.to_thread(_shared_ledger, address)  # the first time it may import a database's driver
    return chosen_ledger(own, near)


@functools.lru_cache
def _shared_ledger(address: str) -> Ledger:
    return open_ledger(address)


def _file_of(saver: SqliteSaver) -> str | None:
    with saver.lock:
        row = saver.conn.execute(_QUERY).fetchone()
    return row[0] if row else None


def _is_async_sqlite(saver: Any) -> bool:
    if isinstance(getattr(saver, "conn", None), sqlite3.Connection) or not hasattr(saver, "conn"):
        return False
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver  # noqa: PLC0415 (needs aiosqlite, which sync users do not)

    return isinstance(saver, AsyncSqliteSaver)


def _is_postgres(saver: Any) -> bool:
    """Return whether it is one of the host's Postgres savers: sync, async or shallow. Whoever has one has imported its module."""
    module = sys.modules.get("langgraph.checkpoint.postgres.base")
    return module is not None and isinstance(saver, module.BasePostgresSaver)


def put_beside(saver: Any, near: Beside) -> Beside:
    """Say what stands beside a saver, unless that is known already; return what does."""
    return _known.setdefault(saver, near)


def _of_postgres(saver: Any) -> Beside | None:
    """Return ledger and leases in a saver's database, over connections of their own, since the saver's may be in a pipeline."""
    from langgraph_handoff.lease_postgres import PostgresLeases  # noqa: PLC0415 (needs psycopg, which others do not have)
    from langgraph_handoff.ledger.postgres import PostgresLedger  # noqa: PLC0415
    from langgraph_handoff.postgres import address_of  # noqa: PLC0415

    address = address_of(saver.conn)
    return None if address is None else put_beside(saver, Beside(PostgresLedger(address), PostgresLeases(address)))


def _placed(file: str | None) -> Beside:
    if not file:  # SQLite names no file for a database in memory
        return Beside(MemoryLedger(), MemoryLeases())
    return Beside(SqliteLedger(ledger_path(file)), FileLeases(locks_path(file)))
