"""Storage in Postgres: the host's saver and store over one pool, and what stands beside the saver."""

from __future__ import annotations

from typing import Any, Final

from langgraph_handoff.beside import Beside, put_beside
from langgraph_handoff.errors import ExtraMissingError, StorageError
from langgraph_handoff.lease_postgres import PostgresLeases
from langgraph_handoff.ledger import Ledger
from langgraph_handoff.ledger.postgres import PostgresLedger
from langgraph_handoff.postgres import Database, only_maker, psycopg
from langgraph_handoff.savers import InThreads, plain_serde

try:
    from langgraph.checkpoint.postgres import PostgresSaver
    from langgraph.store.postgres import PostgresStore
    from psycopg.rows import dict_row
except ImportError as error:
    raise ExtraMissingError(url="postgresql://...", extra="postgres", problem=str(error)) from error

__all__ = ("PostgresCaseSaver", "opened")

_CONNECTIONS: Final = 8


class PostgresCaseSaver(InThreads, PostgresSaver):
    """The host's Postgres saver, for async graphs too."""


def opened(url: str) -> tuple[PostgresCaseSaver, PostgresStore, Ledger, tuple[Any, ...]]:
    """Open a database and make the tables that are missing.

    Args:
        url: "postgresql://user:password@host/database".

    Returns:
        Checkpointer, store, ledger, and what else is to be closed.

    Raises:
        StorageError: If the address is none, or the database cannot be used.
    """
    database = Database(url)
    try:
        with database.connect() as connection, only_maker(connection):
            PostgresSaver(connection).setup()
            PostgresStore(connection).setup()
    except psycopg.Error as error:
        raise StorageError(url=database.shown, problem=database.problem(error)) from error
    # The two keywords are the host's: its savers and stores expect such connections.
    pool = database.pool(_CONNECTIONS, prepare_threshold=0, row_factory=dict_row)
    saver = PostgresCaseSaver(pool, serde=plain_serde())
    ledger, leases = PostgresLedger(url), PostgresLeases(url)
    put_beside(saver, Beside(ledger, leases))
    return saver, PostgresStore(pool), ledger, (leases, pool)
