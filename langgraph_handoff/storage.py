"""From one address: checkpointer, store and ledger.

The checkpoints' file is written in WAL mode with `synchronous=NORMAL`, which survives a killed process; the ledger has a file of
its own beside it, with `synchronous=FULL`, since what it says must never be older than what was done. For Postgres see
`storage_postgres`.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

from filelock import FileLock
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from langgraph_handoff.beside import Beside, ledger_path, locks_path, put_beside
from langgraph_handoff.errors import StorageError
from langgraph_handoff.lease import MemoryLeases
from langgraph_handoff.ledger import POSTGRES, Ledger, MemoryLedger, SqliteLedger
from langgraph_handoff.savers import CaseSaver, CaseStore, plain_serde

__all__ = ("CaseSaver", "CaseStore", "Storage", "aconnect", "connect")

_BUSY_MS: Final = 30_000
"""Milliseconds that a writer waits for another one's lock."""


class Closable(Protocol):
    """Something that is open."""

    def close(self) -> None:
        """Close it."""


@dataclass
class Storage:
    """What a graph keeps its cases in. Usable as a context manager, sync and async."""

    checkpointer: BaseCheckpointSaver[Any]
    store: BaseStore
    ledger: Ledger
    _open: Sequence[Closable] = field(default=(), repr=False)

    def close(self) -> None:
        """Close what is open. Nothing is lost: every step was stored when it ended."""
        self.ledger.close()
        for each in self._open:
            each.close()

    async def aclose(self) -> None:
        """Close what is open."""
        await asyncio.to_thread(self.close)

    def __enter__(self) -> Self:
        """Return the storage."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close what is open."""
        self.close()

    async def __aenter__(self) -> Self:
        """Return the storage."""
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close what is open."""
        await self.aclose()


def connect(url: str) -> Storage:
    """Open storage for cases.

    Args:
        url: A path such as "cases.db", "sqlite:///cases.db", ":memory:", or "postgresql://user:password@host/database". Beside
            `cases.db` stands `cases.ledger.db`; in Postgres the ledger has a schema of its own, `langgraph_handoff`.

    Returns:
        Checkpointer, store and ledger, for sync and async graphs.

    Raises:
        StorageError: If the address cannot be opened; the text says why.
    """
    if url == ":memory:":
        memory, ledger = InMemorySaver(serde=plain_serde()), MemoryLedger()
        put_beside(memory, Beside(ledger, MemoryLeases()))  # graphs that are given the saver alone find the same ledger
        return Storage(memory, InMemoryStore(), ledger)
    scheme, found, _ = url.removeprefix("sqlite:///").partition("://")
    if found and scheme in POSTGRES:
        from langgraph_handoff.storage_postgres import opened  # noqa: PLC0415 (needs the extra `postgres`)

        return Storage(*opened(url))
    if found:  # only the scheme is shown, since the rest may hold a password
        raise StorageError(url=f"{scheme}://...", problem="cases are kept in SQLite files, in Postgres and in memory")
    path = Path(url.removeprefix("sqlite:///"))
    if not path.parent.is_dir():
        raise StorageError(url=str(path), problem=f"the folder {path.parent} does not exist")
    try:
        locks_path(path).mkdir(exist_ok=True)
        with FileLock(locks_path(path) / "setup.lock", timeout=_BUSY_MS / 1000):  # two first ones fail in the host's migrations
            checkpoints, entries = _opened(path), _opened(path)
            entries.isolation_level = None
            saver, store = CaseSaver(checkpoints, serde=plain_serde()), CaseStore(entries)
            saver.setup()
            store.setup()
    except (sqlite3.Error, OSError) as error:
        raise StorageError(url=str(path), problem=str(error)) from error
    return Storage(saver, store, SqliteLedger(ledger_path(path.resolve())), (checkpoints, entries))


@asynccontextmanager
async def aconnect(url: str) -> AsyncIterator[Storage]:
    """Open storage for cases without blocking the loop, and close it at the end; see `connect`."""
    storage = await asyncio.to_thread(connect, url)
    try:
        yield storage
    finally:
        await storage.aclose()


def _opened(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, check_same_thread=False, timeout=_BUSY_MS / 1000)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute(f"PRAGMA busy_timeout={_BUSY_MS}")
    return connection
