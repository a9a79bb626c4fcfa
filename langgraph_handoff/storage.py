"""From one address: checkpointer, store and ledger.

The checkpoints' file is written in WAL mode with `synchronous=NORMAL`, which survives a killed process; the ledger has a file of
its own beside it, with `synchronous=FULL`, since what it says must never be older than what was done.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, ChannelVersions, Checkpoint, CheckpointMetadata, CheckpointTuple
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from langgraph.store.sqlite import SqliteStore

from langgraph_handoff.beside import ledger_path
from langgraph_handoff.errors import StorageError
from langgraph_handoff.ledger import Ledger, MemoryLedger, SqliteLedger

__all__ = ("CaseSaver", "Storage", "aconnect", "connect")

_BUSY_MS: Final = 30_000
"""Milliseconds that a writer waits for another one's lock."""


class CaseSaver(SqliteSaver):
    """The host's SQLite saver, for async graphs too: its async methods run the sync ones in a thread."""

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Read a checkpoint without blocking the loop."""
        return await asyncio.to_thread(self.get_tuple, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """List checkpoints without blocking the loop."""

        def listed() -> list[CheckpointTuple]:
            found: Iterator[CheckpointTuple] = self.list(config, filter=filter, before=before, limit=limit)
            return list(found)

        for each in await asyncio.to_thread(listed):
            yield each

    async def aput(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, new_versions: ChannelVersions
    ) -> RunnableConfig:
        """Store a checkpoint without blocking the loop."""
        return await asyncio.to_thread(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store writes without blocking the loop."""
        await asyncio.to_thread(self.put_writes, config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete a thread without blocking the loop."""
        await asyncio.to_thread(self.delete_thread, thread_id)

    async def aget_delta_channel_history(self, **given: Any) -> Any:
        """Read a delta channel's writes without blocking the loop."""
        return await asyncio.to_thread(lambda: self.get_delta_channel_history(**given))


@dataclass
class Storage:
    """What a graph keeps its cases in. Usable as a context manager, sync and async."""

    checkpointer: BaseCheckpointSaver[Any]
    store: BaseStore
    ledger: Ledger
    _connections: list[sqlite3.Connection] = field(default_factory=list, repr=False)

    def close(self) -> None:
        """Close the files. Nothing is lost: every step was stored when it ended."""
        self.ledger.close()
        for connection in self._connections:
            connection.close()

    async def aclose(self) -> None:
        """Close the files."""
        await asyncio.to_thread(self.close)

    def __enter__(self) -> Self:
        """Return the storage."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close the files."""
        self.close()

    async def __aenter__(self) -> Self:
        """Return the storage."""
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close the files."""
        await self.aclose()


def connect(url: str) -> Storage:
    """Open storage for cases.

    Args:
        url: A path such as "cases.db", "sqlite:///cases.db", or ":memory:". Beside `cases.db` stands `cases.ledger.db`.

    Returns:
        Checkpointer, store and ledger, for sync and async graphs.

    Raises:
        StorageError: If the address cannot be opened; the text says why.
    """
    if url == ":memory:":
        return Storage(InMemorySaver(serde=_serde()), InMemoryStore(), MemoryLedger())
    path = Path(url.removeprefix("sqlite:///"))
    if "://" in str(url) and not url.startswith("sqlite:///"):
        raise StorageError(url=url.rsplit("@", maxsplit=1)[-1], problem="this release opens SQLite files and :memory: only")
    if not path.parent.is_dir():
        raise StorageError(url=str(path), problem=f"the folder {path.parent} does not exist")
    try:
        checkpoints, entries = _opened(path), _opened(path)
        entries.isolation_level = None
        saver, store = CaseSaver(checkpoints, serde=_serde()), SqliteStore(entries)
        saver.setup()
        store.setup()
    except sqlite3.Error as error:
        raise StorageError(url=str(path), problem=str(error)) from error
    return Storage(saver, store, SqliteLedger(ledger_path(path)), [checkpoints, entries])


@asynccontextmanager
async def aconnect(url: str) -> AsyncIterator[Storage]:
    """Open storage for cases without blocking the loop, and close it at the end; see `connect`."""
    storage = await asyncio.to_thread(connect, url)
    try:
        yield storage
    finally:
        await storage.aclose()


def _serde() -> JsonPlusSerializer:
    """Return a serializer that loads messages and plain data only, so that a hostile file is not executed."""
    return JsonPlusSerializer(allowed_msgpack_modules=None)


def _opened(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, check_same_thread=False, timeout=_BUSY_MS / 1000)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute(f"PRAGMA busy_timeout={_BUSY_MS}")
    return connection
