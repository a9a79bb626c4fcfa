"""Where the cases of these tests are kept. A saver is one line of the table; every suite here runs over all of them."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from langgraph_handoff import connect
from langgraph_handoff.beside import abeside
from langgraph_handoff.ledger import Ledger


@dataclass(frozen=True)
class Kept:
    """An open saver, and the ledger that belongs to it."""

    checkpointer: Any
    ledger: Ledger


@dataclass(frozen=True)
class Saver:
    """A way to keep cases in a folder."""

    open: Callable[[Path], AbstractAsyncContextManager[Kept]]
    ways: tuple[str, ...]
    """In which of "sync" and "async" its graphs can be run."""
    stored: Callable[[Path, str, int | None], list[CheckpointTuple]]
    """Read what is stored of a thread, newest first and so many at most, as a process that has nothing to do with the run would."""


def file_in(folder: Path) -> Path:
    """The file that all SQLite savers use, so that one can read what another has written."""
    return folder / "cases.db"


@asynccontextmanager
async def _connected(folder: Path) -> AsyncIterator[Kept]:
    with connect(str(file_in(folder))) as storage:
        yield Kept(storage.checkpointer, storage.ledger)


@asynccontextmanager
async def _sqlite(folder: Path) -> AsyncIterator[Kept]:
    with closing(sqlite3.connect(file_in(folder), check_same_thread=False)) as connection:
        saver = SqliteSaver(connection)
        saver.setup()
        yield await _with_its_ledger(saver)


@asynccontextmanager
async def _async_sqlite(folder: Path) -> AsyncIterator[Kept]:
    async with AsyncSqliteSaver.from_conn_string(str(file_in(folder))) as saver:
        yield await _with_its_ledger(saver)


async def _with_its_ledger(saver: Any) -> Kept:
    near = await abeside(saver)
    assert near is not None
    return Kept(saver, near.ledger)


def _rows(folder: Path, thread_id: str, limit: int | None) -> list[CheckpointTuple]:
    if not file_in(folder).exists():
        return []
    with closing(sqlite3.connect(file_in(folder), check_same_thread=False)) as connection:
        return list(SqliteSaver(connection).list({"configurable": {"thread_id": thread_id}}, limit=limit))


SAVERS = {
    "connect": Saver(_connected, ("sync", "async"), _rows),
    "SqliteSaver": Saver(_sqlite, ("sync",), _rows),
    "AsyncSqliteSaver": Saver(_async_sqlite, ("async",), _rows),
}
