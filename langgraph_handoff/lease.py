"""One run at a time on a thread: a lease that the system takes back when its process dies, so that no time-out has to guess."""

from __future__ import annotations

import abc
import asyncio
import hashlib
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from langgraph_handoff.errors import LedgerError, ThreadBusyError
from langgraph_handoff.threads import to_its_end

__all__ = ("FileLeases", "Leases", "MemoryLeases")

_PAUSES: Final = (0.0, 0.01, 0.05, 0.1)
"""Seconds between an async run's tries."""


class Leases(abc.ABC):
    """Leases on threads. A lease that is held is refused, not waited for."""

    @contextmanager
    def hold(self, thread_id: str) -> Iterator[None]:
        """Hold the lease of a thread.

        Raises:
            ThreadBusyError: If another run holds it.
        """
        held = self.take(thread_id)
        try:
            yield
        finally:
            self.give(thread_id, held)

    @asynccontextmanager
    async def ahold(self, thread_id: str) -> AsyncIterator[None]:
        """Hold the lease of a thread without blocking the loop; see `hold`.

        The loop closes a stream that its reader left a moment later, so a held lease is tried again for as long.
        """
        for pause in _PAUSES:
            try:
                held = await self.atake(thread_id)
                break
            except ThreadBusyError:
                await asyncio.sleep(pause)
        else:
            held = await self.atake(thread_id)
        try:
            yield
        finally:
            await self.agive(thread_id, held)

    async def atake(self, thread_id: str) -> object:
        """Take a lease without blocking the loop. A run that is cancelled meanwhile does not hold it."""
        return await to_its_end(lambda: self.take(thread_id), undo=lambda held: self.give(thread_id, held))

    async def agive(self, thread_id: str, held: object) -> None:
        """Give a lease back without blocking the loop; here it takes no time."""
        self.give(thread_id, held)

    def close(self) -> None:
        """Give back what the leases hold open; here nothing is."""

    @abc.abstractmethod
    def take(self, thread_id: str) -> object:
        """Take a lease and return what `give` needs."""

    @abc.abstractmethod
    def give(self, thread_id: str, held: object) -> None:
        """Give a lease back."""


class MemoryLeases(Leases):
    """Leases within one process, for threads that live in its memory."""

    def __init__(self) -> None:
        """Make leases of which none is held."""
        self._held: set[str] = set()
        self._lock = threading.Lock()

    def take(self, thread_id: str) -> object:
        """Take a lease."""
        with self._lock:
            if thread_id in self._held:
                raise ThreadBusyError(thread_id=thread_id)
            self._held.add(thread_id)
        return None

    def give(self, thread_id: str, held: object) -> None:
        """Give a lease back."""
        with self._lock:
            self._held.discard(thread_id)


class FileLeases(Leases):
    """Leases over processes of one machine: a locked file for each thread, in a folder beside the cases."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Name the folder; it is made at first use."""
        self._folder = Path(folder)

    def take(self, thread_id: str) -> object:
        """Take a lease."""
        name = hashlib.sha256(thread_id.encode(errors="surrogatepass")).hexdigest()[:32]
        try:
            self._folder.mkdir(exist_ok=True)
            # Not bound to a thread: an async run may take it in one thread and give it back in another.
            lock = FileLock(self._folder / f"{name}.lock", thread_local=False)
            lock.acquire(blocking=False)
        except Timeout:
            raise ThreadBusyError(thread_id=thread_id) from None
        except OSError as error:
            raise LedgerError(location=str(self._folder), problem=str(error)) from error
        return lock

    def give(self, thread_id: str, held: object) -> None:
        """Give a lease back."""
        if isinstance(held, FileLock):
            held.release()
