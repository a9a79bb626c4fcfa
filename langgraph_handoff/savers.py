"""The host's sync savers and store, for async graphs too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, ChannelVersions, Checkpoint, CheckpointMetadata, CheckpointTuple
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.store.base import Op, Result
from langgraph.store.sqlite import SqliteStore

__all__ = ("CaseSaver", "CaseStore", "InThreads", "plain_serde")


class InThreads(BaseCheckpointSaver[str]):
    """Async methods that run the sync ones in a thread: put before a sync saver of the host, they serve async graphs."""

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


class CaseSaver(InThreads, SqliteSaver):
    """The host's SQLite saver, for async graphs too."""


class CaseStore(SqliteStore):
    """The host's SQLite store, for async graphs too: its async methods run the sync ones in a thread."""

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Do what is asked without blocking the loop."""
        return await asyncio.to_thread(self.batch, list(ops))


def plain_serde() -> JsonPlusSerializer:
    """Return a serializer that loads messages and plain data only, so that a hostile file is not executed."""
    return JsonPlusSerializer(allowed_msgpack_modules=None)
