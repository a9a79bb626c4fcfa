"""Leases in Postgres: over all hosts that share a database."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import threading
from typing import Final

from langgraph_handoff.errors import LedgerError, ThreadBusyError
from langgraph_handoff.forks import keep, watch
from langgraph_handoff.lease import Leases
from langgraph_handoff.postgres import Connection, Database, psycopg

__all__ = ("PostgresLeases",)

_SESSION: Final = """
SET tcp_keepalives_idle = 30;
SET tcp_keepalives_interval = 10;
SET tcp_keepalives_count = 3;
SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'idle_session_timeout';
"""
"""The server notices after a minute that a client's host is gone, and does not end a session for being quiet."""


class PostgresLeases(Leases):
    """Advisory locks of one session, which the server frees as soon as the process behind it is dead.

    All runs of a process share the session, since a server has sessions for some hundred and a process may have more runs. A
    session may take its own lock twice, so what is held is known here too.
    """

    def __init__(self, url: str) -> None:
        """Name the database; the session is opened at first use.

        Args:
            url: "postgresql://user:password@host/database".

        Raises:
            StorageError: If that is no address of a Postgres database.
        """
        self._database = Database(url)
        self._held: set[int] = set()
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        watch(self)

    def take(self, thread_id: str) -> object:
        """Take a lease."""
        key = _key(thread_id)
        with self._lock:
            if key in self._held:
                raise ThreadBusyError(thread_id=thread_id)
            try:
                free = self._locked(key)
            except psycopg.Error as error:
                raise LedgerError(location=self._database.shown, problem=self._database.problem(error)) from error
            if not free:
                raise ThreadBusyError(thread_id=thread_id)
            self._held.add(key)
        return None

    def give(self, thread_id: str, held: object) -> None:
        """Give a lease back."""
        key = _key(thread_id)
        with self._lock:
            self._held.discard(key)
            if self._connection is not None:
                with contextlib.suppress(psycopg.Error):  # a session that is lost holds nothing
                    self._connection.execute("SELECT pg_advisory_unlock(%s)", [key])

    async def agive(self, thread_id: str, held: object) -> None:
        """Give a lease back without blocking the loop."""
        await asyncio.to_thread(self.give, thread_id, held)

    def close(self) -> None:
        """End the session, and with it all leases."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def __del__(self) -> None:
        """End the session. Leases beside a saver of the host's end with it, and nobody closes them."""
        connection = getattr(self, "_connection", None)
        if connection is not None:
            connection.close()

    def _locked(self, key: int) -> bool:
        """Ask the server for the lock; over a new session, which takes the others again too, if the old one is lost."""
        if self._connection is not None:
            try:
                return _asked(self._connection, key)
            except psycopg.OperationalError:
                if not self._connection.closed:
                    raise
        self._connection = self._database.connect()
        self._connection.execute(_SESSION)
        for each in self._held:
            _asked(self._connection, each)
        return _asked(self._connection, key)

    def forked(self) -> None:
        """Begin anew in a forked child, which holds none of its parent's leases; see `forks`."""
        if self._connection is not None:
            keep(self._connection)
        self._connection, self._held, self._lock = None, set(), threading.Lock()


def _asked(connection: Connection, key: int) -> bool:
    return connection.execute("SELECT pg_try_advisory_lock(%s)", [key]).fetchone() == (True,)


def _key(thread_id: str) -> int:
    """Return the number of a thread's lock: 64 bits that hold other programs' locks too, so they are drawn from all."""
    digest = hashlib.sha256(b"langgraph_handoff:" + thread_id.encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:8], signed=True)
