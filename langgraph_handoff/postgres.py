"""How the package reaches a Postgres database. Only what talks to one imports this; it needs the extra `postgres`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

from langgraph_handoff.errors import ExtraMissingError, StorageError

try:
    import psycopg
    from psycopg import sql
    from psycopg.conninfo import conninfo_to_dict, make_conninfo
    from psycopg_pool import ConnectionPool, PoolTimeout
except ImportError as error:
    raise ExtraMissingError(url="postgresql://...", extra="postgres", problem=str(error)) from error

# With `psycopg` and `sql`, so that whoever takes them from here gets the error that names the extra.
__all__ = ("WAIT", "Connection", "Database", "Pool", "address_of", "only_maker", "psycopg", "sql")

Connection: TypeAlias = psycopg.Connection[Any]
Pool: TypeAlias = ConnectionPool[Connection]

WAIT: Final = 10.0
"""Seconds that an operation waits for a connection or for another one's lock. A server that restarts is back within them."""
_MAKING: Final = 60.0
"""Seconds that a first user waits for another one that makes the tables."""
_MAKER: Final = 0x68616E646F6666  # "handoff"
"""Key of the advisory lock under which tables are made."""
_DEFAULTS: Final = {
    "application_name": "langgraph_handoff",
    "connect_timeout": "10",
    # A host that vanished is noticed after a minute, not after the two hours of the system's default.
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
_UNREADABLE: Final = "the address cannot be read; in a user name or password write @ as %40, / as %2F, : as %3A and % as %25"


class Database:
    """A database and how to reach it. No text that it gives holds its password."""

    def __init__(self, address: str) -> None:
        """Read the address; nothing is opened.

        Args:
            address: "postgresql://user:password@host:port/database", or what else libpq takes.

        Raises:
            StorageError: If it is no address.
        """
        try:
            given = conninfo_to_dict(address)
        except psycopg.ProgrammingError:  # its text repeats the address
            raise StorageError(url="postgresql://...", problem=_UNREADABLE) from None
        host, port, name = (str(given.get(part) or "") for part in ("host", "port", "dbname"))
        if "@" in host[1:] or "@" in name or (port and not port.replace(",", "").isdecimal()):
            # A piece of the password was taken for one of these, and texts show them.
            raise StorageError(url="postgresql://...", problem=_UNREADABLE)
        missing = {name: value for name, value in _DEFAULTS.items() if name not in given}
        self._conninfo = make_conninfo(address, **missing)
        self.shown = f"postgresql://{host}{f':{port}' if port else ''}/{name}"
        """The address without user and password, for messages."""

    def connect(self, **kwargs: Any) -> Connection:
        """Open a connection of one's own, in which each statement is a transaction."""
        return psycopg.connect(self._conninfo, autocommit=True, **kwargs)

    def pool(self, size: int, *, configure: Callable[[Connection], None] | None = None, **kwargs: Any) -> Pool:
        """Return a pool of at most `size` such connections. None is open yet; a lost one is replaced when it is asked for."""

        def checked(connection: Connection) -> None:
            try:
                pool.check_connection(connection)
            except psycopg.Error:
                pool.check()  # the others are as dead, and one by one each would cost a longer pause
                raise

        pool: Pool = ConnectionPool(
            self._conninfo,
            kwargs={"autocommit": True, **kwargs},
            min_size=0,
            max_size=size,
            timeout=WAIT,
            num_workers=1,
            check=checked,
            configure=configure,
            open=True,
        )
        return pool

    def problem(self, error: Exception) -> str:
        """Return what went wrong, on one line. A pool only says that it gave no connection; the server is asked why."""
        if isinstance(error, PoolTimeout):
            try:
                self.connect().close()
            except psycopg.Error as cause:
                error = cause
        return " ".join(str(error).split())


@contextmanager
def only_maker(connection: Connection) -> Iterator[None]:
    """Hold the lock under which tables are made, so that processes that are the first together do not disturb each other.

    It is asked for again and again. Whoever waited for it inside one statement would keep that statement's snapshot, and the
    holder's `CREATE INDEX CONCURRENTLY` waits for all snapshots to end: a deadlock.

    Raises:
        psycopg.errors.LockNotAvailable: If another maker does not come to an end.
    """
    deadline = time.monotonic() + _MAKING
    while connection.execute("SELECT pg_try_advisory_lock(%s)", [_MAKER]).fetchone() != (True,):
        if time.monotonic() > deadline:
            raise psycopg.errors.LockNotAvailable("another process has been making the tables for too long")
        time.sleep(0.02)
    try:
        yield
    finally:
        if not connection.broken:
            connection.execute("SELECT pg_advisory_unlock(%s)", [_MAKER])


def address_of(conn: Any) -> str | None:
    """Return the address behind a connection or a pool of any kind, with its password; None if a pool computes it each time."""
    info = getattr(conn, "info", None)
    if info is not None:
        given = info.get_parameters()
        given.pop("hostaddr", None)  # what the name meant then
        return make_conninfo(**given, password=info.password or None)
    if not isinstance(conn.conninfo, str) or not isinstance(conn.kwargs or {}, dict):
        return None
    known = {option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()}
    return make_conninfo(conn.conninfo, **{name: value for name, value in (conn.kwargs or {}).items() if name in known})
