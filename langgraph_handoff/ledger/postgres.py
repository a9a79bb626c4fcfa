"""A ledger in a Postgres schema of its own, safe over threads, processes and hosts.

Each move is one statement, and one statement is one transaction: no lock outlives a round trip, so a process that is paused in
the middle of a move stands in nobody's way.

The async methods are the base's: the same calls in a thread, waited for to their end. An async pool belongs to one event loop
and gives up its connection in the middle of a commit when its task is cancelled; a thread does neither.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from langgraph_handoff.errors import LedgerError, LedgerUnsettledError, LedgerVersionError
from langgraph_handoff.forks import keep, watch
from langgraph_handoff.ledger.base import FIELDS, Ledger, Proposal, WriteRecord, storable
from langgraph_handoff.ledger.moves import asked_again, conflict, filters, moved, new_record
from langgraph_handoff.ledger.rows import as_record, column
from langgraph_handoff.postgres import WAIT, Connection, Database, Pool, only_maker, psycopg, sql

__all__ = ("PostgresLedger",)

_SCHEMA_VERSION: Final = 1
_CONNECTIONS: Final = 8
_CREATE: Final = f"""
CREATE SCHEMA IF NOT EXISTS langgraph_handoff;
CREATE TABLE langgraph_handoff.handoff_ops (
    op TEXT PRIMARY KEY, key TEXT NOT NULL, seq BIGINT NOT NULL, state TEXT NOT NULL, epoch BIGINT NOT NULL,
    kind TEXT NOT NULL, case_id TEXT NOT NULL, tenant TEXT NOT NULL, thread_id TEXT NOT NULL, call_id TEXT NOT NULL,
    agent TEXT NOT NULL, tool TEXT NOT NULL, args TEXT NOT NULL, digest TEXT NOT NULL, reason TEXT NOT NULL,
    proposed_at DOUBLE PRECISION NOT NULL, expires_at DOUBLE PRECISION, decision TEXT, approver TEXT,
    decided_at DOUBLE PRECISION, comment TEXT, bare BOOLEAN NOT NULL DEFAULT FALSE, token TEXT,
    started_at DOUBLE PRECISION, result TEXT, error TEXT, finished_at DOUBLE PRECISION, checkpoint_id TEXT COLLATE "C"
);
CREATE INDEX handoff_ops_key ON langgraph_handoff.handoff_ops (key, seq);
CREATE INDEX handoff_ops_case ON langgraph_handoff.handoff_ops (case_id, call_id);
CREATE INDEX handoff_ops_thread ON langgraph_handoff.handoff_ops (thread_id);
CREATE TABLE langgraph_handoff.ledger_version (version INTEGER NOT NULL);
INSERT INTO langgraph_handoff.ledger_version VALUES ({_SCHEMA_VERSION});
"""
_SESSION: Final = f"""
SET synchronous_commit = on;
SET default_transaction_isolation = 'read committed';
SET lock_timeout = '{int(WAIT * 1000)}ms';
"""
"""Whatever the server's defaults are: a move that returned is on the disk, and of two moves the later one sees the earlier."""


def _names(names: Collection[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, names))


_SELECT: Final = sql.SQL("SELECT {} FROM langgraph_handoff.handoff_ops").format(_names(FIELDS))
_INSERT: Final = sql.SQL("INSERT INTO langgraph_handoff.handoff_ops ({}) VALUES ({}) ON CONFLICT (op) DO NOTHING").format(
    _names(FIELDS), sql.SQL(", ").join([sql.Placeholder()] * len(FIELDS))
)


class PostgresLedger(Ledger):
    """Keeps rows in the schema `langgraph_handoff`, each move with `synchronous_commit=on`: one that returned is on the disk.

    It has connections of its own. A pooler between it and the server must keep sessions (PgBouncer: `pool_mode = session`).
    """

    def __init__(self, url: str) -> None:
        """Name the database; it is opened, and the schema made if need be, at first use.

        Args:
            url: "postgresql://user:password@host/database".

        Raises:
            StorageError: If that is no address of a Postgres database.
        """
        self._database = Database(url)
        self._lock = threading.Lock()
        self._pool: Pool | None = None
        watch(self)

    @property
    def location(self) -> str:
        """The address, without user and password."""
        return self._database.shown

    def propose(self, proposal: Proposal, *, seq: int) -> tuple[WriteRecord, bool]:
        """Store a proposal once; see `Ledger.propose`."""
        made = new_record(proposal, seq, time.time())
        row = [column(name, getattr(made, name)) for name in FIELDS]
        with self._used(changes=True) as connection:
            if connection.execute(_INSERT, row).rowcount == 1:
                return made, True
            while True:
                held = _read(connection, made.op)
                if held is None:
                    raise LedgerError(location=self.location, problem=f"the row {made.op} was deleted while it was read")
                again = asked_again(held, made)
                if again is None:
                    return held, False
                stored = _swapped(connection, held, {name: getattr(again, name) for name in FIELDS})
                if stored is not None:
                    return stored, True
                # Somebody moved it between the two statements: look again at what it is now.

    def get(self, op: str) -> WriteRecord | None:
        """Return a row."""
        with self._used() as connection:
            return _read(connection, storable(op))

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
        asked: dict[str, Any] = {**filters(case_id=case_id, key=key, call_id=call_id, thread_id=thread_id)}
        clauses: list[sql.Composable] = [sql.SQL("{} = %s").format(sql.Identifier(name)) for name in asked]
        if states is not None:
            clauses.append(sql.SQL("state = ANY(%s)"))
            asked["state"] = list(states)
        where = sql.SQL(" WHERE {}").format(sql.SQL(" AND ").join(clauses)) if clauses else sql.SQL("")
        with self._used() as connection:
            rows = connection.execute(_SELECT + where + sql.SQL(" ORDER BY proposed_at, seq"), list(asked.values()))
            return [as_record(row) for row in rows]

    def latest_checkpoint(self, thread_id: str) -> str | None:
        """Return the latest checkpoint of a thread from which an operation was begun."""
        query = "SELECT max(checkpoint_id) FROM langgraph_handoff.handoff_ops WHERE thread_id = %s"
        with self._used() as connection:
            row = connection.execute(query, [storable(thread_id)]).fetchone()
            return None if row is None or row[0] is None else str(row[0])

    def move(self, record: WriteRecord, event: str, **changes: Any) -> WriteRecord:
        """Move a row by one compare-and-set; see `Ledger.move`."""
        after = moved(record, event, changes)
        with self._used(changes=True) as connection:
            stored = _swapped(connection, record, after)
            if stored is None:
                raise conflict(record, event, _read(connection, record.op), self.location)
            return stored

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    @contextmanager
    def _used(self, *, changes: bool = False) -> Iterator[Connection]:
        try:
            with self._opened().connection() as connection:
                try:
                    yield connection
                except psycopg.Error as error:
                    if changes and connection.broken:  # the server's answer did not come, so nobody knows
                        raise LedgerUnsettledError(location=self.location, problem=self._database.problem(error)) from error
                    raise
        except psycopg.Error as error:
            raise LedgerError(location=self.location, problem=self._database.problem(error)) from error

    def _opened(self) -> Pool:
        with self._lock:
            if self._pool is None:
                with self._database.connect() as connection:
                    self._prepare(connection)
                self._pool = self._database.pool(_CONNECTIONS, configure=_configured)
            return self._pool

    def _prepare(self, connection: Connection) -> None:
        version = _version(connection)
        if version is None:
            with only_maker(connection):
                if _version(connection) is None:
                    with connection.transaction():
                        connection.execute(_CREATE)
        elif version > _SCHEMA_VERSION:
            raise LedgerVersionError(location=self.location, found=version, supported=_SCHEMA_VERSION)

    def forked(self) -> None:
        """Begin anew in a forked child; see `forks`."""
        if self._pool is not None:
            keep(self._pool)
        self._pool, self._lock = None, threading.Lock()


def _configured(connection: Connection) -> None:
    connection.execute(_SESSION)


def _version(connection: Connection) -> int | None:
    """Return the version of the schema that is there."""
    table = "langgraph_handoff.ledger_version"
    if connection.execute("SELECT to_regclass(%s)", [table]).fetchone() == (None,):
        return None
    row = connection.execute("SELECT version FROM langgraph_handoff.ledger_version").fetchone()
    return int(row[0]) if row else None


def _read(connection: Connection, op: str) -> WriteRecord | None:
    row = connection.execute(_SELECT + sql.SQL(" WHERE op = %s"), [op]).fetchone()
    return None if row is None else as_record(row)


def _swapped(connection: Connection, seen: WriteRecord, values: Mapping[str, Any]) -> WriteRecord | None:
    """Set the values in one statement if the row still is as it was seen. Returns the row, or None if it is not."""
    sets = sql.SQL(", ").join(sql.SQL("{} = %s").format(sql.Identifier(name)) for name in values)
    query = sql.SQL(
        "UPDATE langgraph_handoff.handoff_ops SET {} WHERE op = %s AND state = %s AND epoch = %s"
        " AND token IS NOT DISTINCT FROM %s RETURNING {}"
    ).format(sets, _names(FIELDS))
    given = [column(name, value) for name, value in values.items()]
    row = connection.execute(query, [*given, seen.op, seen.state, seen.epoch, seen.token]).fetchone()
    return None if row is None else as_record(row)
