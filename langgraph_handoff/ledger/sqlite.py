"""A ledger in a SQLite file of its own, safe over threads and processes."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from langgraph_handoff.errors import LedgerError, LedgerVersionError
from langgraph_handoff.forks import keep, watch
from langgraph_handoff.ledger.base import FIELDS, Ledger, Proposal, WriteRecord, storable
from langgraph_handoff.ledger.moves import asked_again, conflict, filters, moved, new_record
from langgraph_handoff.ledger.rows import as_record, column

__all__ = ("SqliteLedger",)

_SCHEMA_VERSION: Final = 2
_BUSY: Final = 10.0
"""Seconds that a writer waits for another one's lock."""
_CREATE: Final = """
CREATE TABLE IF NOT EXISTS handoff_ops (
    op TEXT PRIMARY KEY, key TEXT NOT NULL, seq INTEGER NOT NULL, state TEXT NOT NULL, epoch INTEGER NOT NULL,
    kind TEXT NOT NULL, case_id TEXT NOT NULL, tenant TEXT NOT NULL, thread_id TEXT NOT NULL, call_id TEXT NOT NULL,
    agent TEXT NOT NULL, tool TEXT NOT NULL, args TEXT NOT NULL, digest TEXT NOT NULL, reason TEXT NOT NULL,
    proposed_at REAL NOT NULL, expires_at REAL, decision TEXT, approver TEXT, decided_at REAL, comment TEXT,
    bare INTEGER NOT NULL DEFAULT 0, token TEXT, started_at REAL, result TEXT, error TEXT, finished_at REAL, checkpoint_id TEXT
)
"""
_INDEXES: Final = (
    "CREATE INDEX IF NOT EXISTS handoff_ops_key ON handoff_ops (key, seq)",
    "CREATE INDEX IF NOT EXISTS handoff_ops_case ON handoff_ops (case_id, call_id)",
    "CREATE INDEX IF NOT EXISTS handoff_ops_thread ON handoff_ops (thread_id)",
)


class SqliteLedger(Ledger):
    """Keeps rows in a file, with `synchronous=FULL`: a move that returned is on the disk."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Name the file; it is opened, and made if need be, at first use.

        Args:
            path: The file. Its folder must exist.
        """
        self._path = Path(path)
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        watch(self)

    @property
    def location(self) -> str:
        """The file."""
        return str(self._path)

    def propose(self, proposal: Proposal, *, seq: int) -> tuple[WriteRecord, bool]:
        """Store a proposal once; see `Ledger.propose`."""
        made = new_record(proposal, seq, time.time())
        with self._transaction() as connection:
            held = self._read(connection, made.op)
            stored = made if held is None else asked_again(held, made) or held
            if stored is not held:
                marks = ", ".join("?" * len(FIELDS))
                row = [column(name, getattr(stored, name)) for name in FIELDS]
                connection.execute(f"INSERT OR REPLACE INTO handoff_ops ({', '.join(FIELDS)}) VALUES ({marks})", row)
            return stored, stored is not held

    def get(self, op: str) -> WriteRecord | None:
        """Return a row."""
        with self._used() as connection:
            return self._read(connection, op)

    def records(
        self,
        *,
        case_id: str | None = None,
        key: str | None = None,
        call_id: str | None = None,
        thread_id: str | None = None,
        states: Collection[str] | None = None,
    ) -> list[WriteRecord]:
        """Return the rows that fit all given filters."""
        asked = filters(case_id=case_id, key=key, call_id=call_id, thread_id=thread_id)
        clauses = [f"{name} = ?" for name in asked]
        values: list[Any] = [*asked.values()]
        if states is not None:
            clauses.append(f"state IN ({', '.join('?' * len(states))})")
            values += states
        where = f" WHERE {' AND '.join(clauses)}" if clauses else ""
        with self._used() as connection:
            rows = connection.execute(f"SELECT {', '.join(FIELDS)} FROM handoff_ops{where} ORDER BY proposed_at, seq", values)
            return [as_record(row) for row in rows]

    def latest_checkpoint(self, thread_id: str) -> str | None:
        """Return the latest checkpoint of a thread from which an operation was begun."""
        with self._used() as connection:
            found = connection.execute("SELECT max(checkpoint_id) FROM handoff_ops WHERE thread_id = ?", [storable(thread_id)])
            (latest,) = found.fetchone()
            return None if latest is None else str(latest)

    def move(self, record: WriteRecord, event: str, **changes: Any) -> WriteRecord:
        """Move a row by one compare-and-set; see `Ledger.move`."""
        after = moved(record, event, changes)
        sets = ", ".join(f"{name} = ?" for name in after)
        values = [column(name, value) for name, value in after.items()]
        with self._transaction() as connection:
            done = connection.execute(
                f"UPDATE handoff_ops SET {sets} WHERE op = ? AND state = ? AND epoch = ? AND token IS ?",
                [*values, record.op, record.state, record.epoch, record.token],
            )
            held = self._read(connection, record.op)
            if done.rowcount != 1 or held is None:
                raise conflict(record, event, held, self.location)
            return held

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def _read(self, connection: sqlite3.Connection, op: str) -> WriteRecord | None:
        row = connection.execute(f"SELECT {', '.join(FIELDS)} FROM handoff_ops WHERE op = ?", [op]).fetchone()
        return None if row is None else as_record(row)

    @contextmanager
    def _used(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                yield self._opened()
            except (sqlite3.Error, OSError, OverflowError) as error:
                raise LedgerError(location=self.location, problem=str(error)) from error

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Hold the write lock from the first read on, so that what was read is still true when it is written."""
        with self._used() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.commit()
            except BaseException:
                connection.rollback()  # does nothing where SQLite has already rolled back
                raise

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            if not self._path.parent.is_dir():
                raise LedgerError(location=self.location, problem=f"the folder {self._path.parent} does not exist")
            connection = sqlite3.connect(self._path, check_same_thread=False, timeout=_BUSY, isolation_level=None)
            try:
                self._prepare(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > _SCHEMA_VERSION:
            raise LedgerVersionError(location=self.location, found=version, supported=_SCHEMA_VERSION)
        _switch_to_wal(connection)
        connection.execute("PRAGMA synchronous=FULL")
        if version < _SCHEMA_VERSION:
            connection.execute("BEGIN IMMEDIATE")
            (version,) = connection.execute("PRAGMA user_version").fetchone()  # another process may have been faster
            if version == 1:
                connection.execute("ALTER TABLE handoff_ops ADD COLUMN checkpoint_id TEXT")
            connection.execute(_CREATE)
            for index in _INDEXES:
                connection.execute(index)
            connection.execute(f"PRAGMA user_version={_SCHEMA_VERSION}")
            connection.commit()

    def forked(self) -> None:
        """Begin anew in a forked child; see `forks`."""
        if self._connection is not None:
            keep(self._connection)
        self._connection, self._lock = None, threading.RLock()


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    """Set the journal mode; for this one statement SQLite does not wait when another process sets it too."""
    deadline = time.monotonic() + _BUSY
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.005)
