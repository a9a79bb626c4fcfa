"""Entries in the host's SQLite store, and an index beside them in the same database.

Triggers on the host's table keep the index of names (`handoff_entries`): it is written in the transaction that writes the entry,
by whichever process and connection, and is never older than the store. They also hold what memory promises: an entry that is
there is not written over.

The index of words (`handoff_words`, FTS5) follows in transactions of its own, at the latest when it is asked. A trigger must not
write it: a connection reads such a table when it first meets it, and a transaction that has begun with a read fails at once where
another process writes, so that any first `put` of anybody could be refused.

Both are built again from the store where the triggers are missing, as after the host's table was made anew.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Coroutine, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, Final, Protocol, TypeVar

from langgraph.store.base import BaseStore
from langgraph.store.sqlite import SqliteStore

from langgraph_handoff.errors import MemoryStoreError
from langgraph_handoff.memory.entry import Entry, stamp
from langgraph_handoff.memory.shelf import OPEN, ROOT, TRACE_WEIGHT, CaseSummary, StoreShelf, Wanted, case_of, namespace, ranked
from langgraph_handoff.memory.words import TOKENIZER, WEIGHTS, Asked, asked, quoted, stem

__all__ = ("Sql", "SqliteShelf", "sql_of")

_T = TypeVar("_T")

_NAMES: Final = ("entry_type", "agent", "to_agent", "task_id", "handoff_id", "verdict", "created_at")
_MINE: Final = f"{{0}}.prefix GLOB '{ROOT}.*'"
_READ: Final = "json_extract(CAST({0}.value AS TEXT), '$.{1}')"
"""The host writes its JSON as bytes."""


def _columns(row: str) -> str:
    return ", ".join((f"{row}.key", f"{row}.prefix", *(_READ.format(row, name) for name in _NAMES)))


def _words(row: str) -> str:
    return ", ".join(f"coalesce({_READ.format(row, name)}, '')" for name in ("head", "body"))


_FIELDS: Final = ", ".join(("entry_id", "prefix", *_NAMES))
_TABLES: Final = ("handoff_entries", "handoff_words", "handoff_indexed", "handoff_gone")
_SETUP: Final = (
    *(f"DROP TABLE IF EXISTS {name}" for name in _TABLES),
    """CREATE TABLE handoff_entries (
        id INTEGER PRIMARY KEY AUTOINCREMENT, entry_id TEXT NOT NULL UNIQUE, prefix TEXT NOT NULL, entry_type TEXT, agent TEXT,
        to_agent TEXT, task_id TEXT, handoff_id TEXT, verdict TEXT, created_at TEXT
    )""",
    "CREATE INDEX handoff_entries_case ON handoff_entries (prefix, created_at)",
    "CREATE INDEX handoff_entries_type ON handoff_entries (entry_type, created_at)",
    "CREATE INDEX handoff_entries_to ON handoff_entries (to_agent) WHERE to_agent IS NOT NULL",
    "CREATE INDEX handoff_entries_about ON handoff_entries (handoff_id, created_at) WHERE handoff_id IS NOT NULL",
    f"CREATE VIRTUAL TABLE handoff_words USING fts5(head, body, content='', tokenize='{TOKENIZER}')",
    "CREATE TABLE handoff_indexed (upto INTEGER NOT NULL)",
    "INSERT INTO handoff_indexed VALUES (0)",
    "CREATE TABLE handoff_gone (id INTEGER PRIMARY KEY, head TEXT NOT NULL, body TEXT NOT NULL)",
    f"""CREATE TRIGGER IF NOT EXISTS handoff_entry_once BEFORE INSERT ON store
        WHEN {_MINE.format("NEW")} AND EXISTS (SELECT 1 FROM handoff_entries WHERE entry_id = NEW.key)
        BEGIN SELECT RAISE(IGNORE); END""",
    f"""CREATE TRIGGER IF NOT EXISTS handoff_entry_added AFTER INSERT ON store WHEN {_MINE.format("NEW")}
        BEGIN INSERT INTO handoff_entries ({_FIELDS}) VALUES ({_columns("NEW")}); END""",
    f"""CREATE TRIGGER IF NOT EXISTS handoff_entry_gone AFTER DELETE ON store WHEN {_MINE.format("OLD")} BEGIN
        INSERT INTO handoff_gone SELECT id, {_words("OLD")} FROM handoff_entries, handoff_indexed
            WHERE entry_id = OLD.key AND prefix = OLD.prefix AND id <= upto;
        DELETE FROM handoff_entries WHERE entry_id = OLD.key AND prefix = OLD.prefix;
        END""",
    f"INSERT OR IGNORE INTO handoff_entries ({_FIELDS}) SELECT {_columns('store')} FROM store WHERE {_MINE.format('store')}",
)
_IS_SET_UP: Final = "SELECT 1 FROM sqlite_master WHERE name = 'handoff_entry_gone'"

_LAG: Final = """SELECT max(coalesce((SELECT max(id) FROM handoff_entries), 0) - upto, 0) + (SELECT count(*) FROM handoff_gone)
    FROM handoff_indexed"""
_LONGEST_LAG: Final = 200
"""Entries without their words that a writer leaves to the next one."""
_CATCH_UP: Final = (
    "INSERT INTO handoff_words (handoff_words, rowid, head, body) SELECT 'delete', id, head, body FROM handoff_gone",
    "DELETE FROM handoff_gone",
    f"""INSERT INTO handoff_words (rowid, head, body) SELECT e.id, {_words("s")}
        FROM handoff_entries e JOIN store s ON s.prefix = e.prefix AND s.key = e.entry_id, handoff_indexed WHERE e.id > upto""",
    "UPDATE handoff_indexed SET upto = max(upto, coalesce((SELECT max(id) FROM handoff_entries), 0))",
)

_FEW: Final = 300
"""So many entries are read and ranked among themselves, which tells best what is rare in this case."""
_SMALL: Final = 2_000_000
"""So many bytes at most."""
_COMMON: Final = 1000
"""A word that so many entries have tells little and would cost the most; it is asked for only if all words are such."""
_PAIRED: Final = 5
"""How much more common than that both words of a pair may be: side by side they tell more."""
_ANSWERS: Final = (
    "SELECT verdict FROM handoff_entries a WHERE a.handoff_id = e.entry_id ORDER BY a.created_at DESC, a.id DESC LIMIT 1"
)


class Sql(Protocol):
    """The store's database, as its connection lets it be used."""

    def setup(self) -> None:
        """Make the host's own tables."""
        ...

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        """Run a query."""
        ...

    def together(self, statements: Sequence[str], *, unless: str) -> None:
        """Run statements in one transaction, but none if the query `unless` has a row in it."""
        ...


def sql_of(store: BaseStore) -> Sql | None:
    """Return the database of a store; None when it is not one of the host's SQLite stores."""
    if isinstance(store, SqliteStore):
        return _Sql(store)
    if not hasattr(store, "conn"):
        return None
    try:
        from langgraph.store.sqlite.aio import AsyncSqliteStore  # noqa: PLC0415 (needs aiosqlite, which sync users do not)
    except ImportError:
        return None
    return _AsyncSql(store) if isinstance(store, AsyncSqliteStore) else None


class _Sql:
    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    def setup(self) -> None:
        self._store.setup()

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        with self._store.lock:
            return self._store.conn.execute(query, values).fetchall()

    def together(self, statements: Sequence[str], *, unless: str) -> None:
        with self._store.lock:
            connection = self._store.conn
            connection.execute("BEGIN IMMEDIATE")
            try:
                for statement in statements if not connection.execute(unless).fetchone() else ():
                    connection.execute(statement)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:  # SQLite may have rolled back already
                    connection.execute("ROLLBACK")
                raise


class _AsyncSql:
    """The database of an async store, whose connection belongs to a loop; used from other threads."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def setup(self) -> None:
        self._in_loop(self._store.setup())

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        return self._in_loop(self._rows(query, values))

    def together(self, statements: Sequence[str], *, unless: str) -> None:
        self._in_loop(self._together(statements, unless))

    async def _rows(self, query: str, values: Sequence[Any]) -> list[Any]:
        async with self._store.lock:
            return list(await self._store.conn.execute_fetchall(query, values))

    async def _together(self, statements: Sequence[str], unless: str) -> None:
        async with self._store.lock:
            connection = self._store.conn
            await connection.execute("BEGIN IMMEDIATE")
            try:
                for statement in statements if not await connection.execute_fetchall(unless) else ():
                    await connection.execute(statement)
                await connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    await connection.execute("ROLLBACK")
                raise

    def _in_loop(self, work: Coroutine[Any, Any, _T]) -> _T:
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if here is self._store.loop:  # the loop would wait for itself
            work.close()
            raise MemoryStoreError(problem="its store is async and this is its event loop; await the twin that begins with `a`")
        return asyncio.run_coroutine_threadsafe(work, self._store.loop).result()


class SqliteShelf(StoreShelf):
    """Entries in one of the host's SQLite stores, found by an index in the same database."""

    def __init__(self, store: BaseStore, sql: Sql) -> None:
        """Put the shelf over a store and its database; the index is made at first use."""
        super().__init__(store)
        self._sql = sql
        self._ready = False

    def add(self, entries: Sequence[Entry]) -> None:
        """Store entries; the triggers note their names, and now and then a writer indexes the words."""
        self._prepare()
        with _explained():
            super().add(entries)
        self._catch_up(_LONGEST_LAG)

    def find(
        self, wanted: Wanted, *, query: str = "", limit: int | None = None, offset: int = 0, oldest_first: bool = False
    ) -> list[Entry]:
        """Return entries."""
        self._prepare()
        if query and self._embedded:
            return super().find(wanted, query=query, limit=limit, offset=offset)
        where, values = _clauses(wanted)
        found: Sequence[Mapping[str, Any]]
        if not query:
            order = "ASC" if oldest_first else "DESC"
            found = self._values(
                where, f"ORDER BY e.created_at {order}, e.id {order} LIMIT ? OFFSET ?", [*values, _all(limit), offset]
            )
        elif self._are_few(where, values):
            few = self._values(where, "ORDER BY e.created_at DESC, e.id DESC", values)
            found = ranked(few, query)[offset : None if limit is None else offset + limit]
        else:
            found = self._matching(asked(query), where, values, _all(limit), offset)
        return [Entry.load(item) for item in found]

    def cases(self) -> list[CaseSummary]:
        """Return the cases."""
        self._prepare()
        rows = self._rows(
            f"""SELECT prefix, count(*), sum(entry_type = 'handoff' AND NOT EXISTS ({_ANSWERS})), max(created_at)
            FROM handoff_entries e GROUP BY prefix ORDER BY 4 DESC"""
        )
        return [CaseSummary(case_of(prefix.split(".", 1)[1]), *counts) for prefix, *counts in rows]

    def mark(self) -> Hashable | None:
        """Return a number that SQLite changes when another connection has written to the file."""
        self._prepare()
        return int(self._rows("PRAGMA data_version")[0][0])

    def _are_few(self, where: str, values: Sequence[Any]) -> bool:
        ((count, size),) = self._rows(
            f"""SELECT count(*), sum(length(s.value)) FROM (
                SELECT e.prefix, e.entry_id FROM handoff_entries e WHERE {where} LIMIT ?
            ) f JOIN store s ON s.prefix = f.prefix AND s.key = f.entry_id""",
            [*values, _FEW + 1],
        )
        return count <= _FEW and (size or 0) <= _SMALL

    def _values(self, where: str, order: str, values: Sequence[Any]) -> list[dict[str, Any]]:
        rows = self._rows(
            f"""SELECT s.value FROM handoff_entries e JOIN store s ON s.prefix = e.prefix AND s.key = e.entry_id
            WHERE {where} {order}""",
            values,
        )
        return [json.loads(value) for (value,) in rows]

    def _matching(self, query: Asked, where: str, values: Sequence[Any], limit: int, offset: int) -> list[dict[str, Any]]:
        """Return the items of a big scope that fit, as FTS5 ranks them over all entries."""
        self._catch_up(0)
        phrases = self._telling(query)
        if not phrases:
            return []
        rows = self._rows(
            f"""SELECT s.value FROM (
                SELECT e.id, e.prefix, e.entry_id,
                    bm25(handoff_words, {WEIGHTS}) * iif(e.entry_type = 'trace', {TRACE_WEIGHT}, 1) AS score
                FROM handoff_words CROSS JOIN handoff_entries e ON e.id = handoff_words.rowid
                WHERE handoff_words MATCH ? AND {where} ORDER BY score, e.id DESC LIMIT ? OFFSET ?
            ) f JOIN store s ON s.prefix = f.prefix AND s.key = f.entry_id ORDER BY f.score, f.id DESC""",
            [phrases, *values, limit, offset],
        )
        return [json.loads(value) for (value,) in rows]

    def _telling(self, query: Asked) -> str:
        """Return the part of a query that tells entries apart, as FTS5 asks for it.

        That is every word that few entries have, and every pair with a word that not too many have: a pair is found by way of
        its rarer word. A query of common words alone asks for all of them together.
        """
        uses = {word: self._uses(quoted(word)) for word in dict.fromkeys((*query.words, *chain.from_iterable(query.pairs)))}
        telling = [quoted(word) for word in query.words if 0 < uses[word] < _COMMON]
        telling += [f"{quoted(start)}*" for word in query.words if not uses[word] and (start := stem(word))]
        telling += [quoted(*pair) for pair in query.pairs if min(uses[word] for word in pair) < _COMMON * _PAIRED]
        common = [quoted(word) for word in query.words if uses[word]] or [quoted(*pair) for pair in query.pairs]
        return " OR ".join(telling) or " AND ".join(common)

    def _uses(self, phrase: str) -> int:
        ((count,),) = self._rows(
            "SELECT count(*) FROM (SELECT 1 FROM handoff_words WHERE handoff_words MATCH ? LIMIT ?)", [phrase, _COMMON * _PAIRED]
        )
        return int(count)

    def _catch_up(self, lag: int) -> None:
        """Index the words of what was stored or removed since, if that is more than `lag` entries."""
        ((behind,),) = self._rows(_LAG)
        if behind > lag:
            with _explained():
                self._sql.together(_CATCH_UP, unless="SELECT 1 WHERE FALSE")

    def _rows(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        with _explained():
            return self._sql.rows(query, values)

    def _prepare(self) -> None:
        if not self._ready:
            with _explained():
                self._sql.setup()
                if not self._sql.rows(_IS_SET_UP):
                    self._sql.together(_SETUP, unless=_IS_SET_UP)
            self._ready = True


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise MemoryStoreError(problem=str(error)) from error


def _all(limit: int | None) -> int:
    return -1 if limit is None else limit  # SQLite's way to say so


def _clauses(wanted: Wanted) -> tuple[str, list[Any]]:
    """Return a filter as a WHERE clause over `handoff_entries e`."""
    clauses = ["TRUE"]
    values: list[Any] = []

    def among(name: str, allowed: Sequence[str]) -> None:
        clauses.append(f"e.{name} IN ({', '.join('?' * len(allowed))})")
        values.extend(allowed)

    for name, value in wanted.equal().items():
        among(name, [value])
    if wanted.case_ids is not None:
        among("prefix", [".".join(namespace(case)) for case in wanted.case_ids])
    if wanted.entry_types is not None and len(wanted.entry_types) != 1:
        among("entry_type", wanted.entry_types)
    for sign, moment in ((">=", wanted.since), ("<", wanted.until)):
        if moment is not None:
            clauses.append(f"e.created_at {sign} ?")
            values.append(stamp(moment))
    if wanted.status is not None:
        clauses.append(f"e.entry_type = 'handoff' AND coalesce(({_ANSWERS}), '{OPEN}') = ?")
        values.append(wanted.status)
    return " AND ".join(clauses), values
