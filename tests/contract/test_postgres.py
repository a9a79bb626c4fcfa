"""What is particular to Postgres: addresses, a server that goes away, sessions, and the extra."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from langgraph_handoff import connect
from langgraph_handoff.errors import (
    LedgerConflictError,
    LedgerError,
    LedgerUnsettledError,
    LedgerVersionError,
    StorageError,
)
from langgraph_handoff.ledger import Ledger, WriteRecord, open_ledger
from langgraph_handoff.ledger.postgres import PostgresLedger
from tests import postgres
from tests.contract.test_ledger import proposal, run_together

BUSY = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
END = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


@pytest.fixture
def url() -> str:
    """The address of a database that is empty."""
    return postgres.server().empty()


@pytest.fixture
def ledger(url: str) -> Iterator[PostgresLedger]:
    """An empty ledger."""
    with PostgresLedger(url) as opened:
        yield opened


def approved(ledger: Ledger) -> WriteRecord:
    """Return a row that may be started."""
    return ledger.move(ledger.propose(proposal(), seq=1)[0], "approve")


@contextmanager
def blocked(url: str) -> Iterator[psycopg.Connection[Any]]:
    """Hold the locks of all rows, so that a move waits for as long as this lasts."""
    with psycopg.connect(url) as blocker:
        blocker.execute("SELECT op FROM langgraph_handoff.handoff_ops FOR UPDATE")
        yield blocker


def waiting(url: str) -> int:
    """Wait until somebody waits for a lock, and return the server's process for them."""
    with psycopg.connect(url, autocommit=True) as other:
        while (row := other.execute(BUSY).fetchone()) is None:
            time.sleep(0.005)
        return int(row[0])


# Addresses.


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_an_address_of_postgres_opens_a_ledger_there(url: str, scheme: str) -> None:
    """Both of libpq's schemes are taken, and nothing is opened before the ledger is used."""
    with open_ledger(url.replace("postgresql", scheme, 1)) as held:
        assert isinstance(held, PostgresLedger)
        assert held.records() == []


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://ana:secret@127.0.0.1:1/cases",
        "postgresql://127.0.0.1:1/cases?user=ana&password=secret",
        "postgresql://ana:secret@no-such-host.invalid/cases",
        "postgresql://ana:se/secret@127.0.0.1:1/cases",
        "postgresql://ana:12/secret@127.0.0.1:1/cases",
        "postgresql://ana:x@secret@127.0.0.1:1/cases",
        "postgresql://ana:se%secret@127.0.0.1:1/cases",
        "postgresql://ana:secret@127.0.0.1:1/cases?nonsense=1",
        "postgresql://ana:secret@[127.0.0.1:1/cases",
    ],
)
def test_no_error_about_an_address_repeats_its_password(address: str) -> None:
    """Whether an address cannot be read or not be reached, the whole traceback shows the matter and no piece of the password."""
    used: list[Callable[[], object]] = [lambda: connect(address), lambda: open_ledger(address).records()]
    for use in used:
        with pytest.raises((StorageError, LedgerError)) as caught:
            use()
        shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value.fields)
        source = "".join(line for line in shown.splitlines(keepends=True) if "lambda" not in line)
        assert "secret" not in source
        assert "postgresql://" in str(caught.value)


def test_a_server_that_does_not_answer_is_named_with_its_reason() -> None:
    """The error says which server, and why it could not be used."""
    with pytest.raises(LedgerError, match=r"ledger at postgresql://127\.0\.0\.1:1/cases could not be used: .*refused"):
        PostgresLedger("postgresql://127.0.0.1:1/cases").records()


@pytest.mark.parametrize("use", ["connect(url)", "open_ledger(url)"])
def test_a_missing_extra_is_named(use: str) -> None:
    """Without psycopg the package works, does not ask for it, and says what to install when Postgres is wanted."""
    code = (
        "import sys; sys.modules['psycopg'] = None; from langgraph_handoff import connect;"
        "from langgraph_handoff.ledger import open_ledger; connect(':memory:').close(); url = 'postgresql://ana:secret@host/db'\n"
        f"try: {use}\nexcept ImportError as error: print(type(error).__name__, error)"
    )
    ran = run_python(code)
    assert ran.startswith("ExtraMissingError The storage at postgresql://... needs an optional part of the package")
    assert ran.endswith('Install it: `pip install "langgraph-handoff[postgres]"`.\n')


def test_the_package_does_not_import_psycopg() -> None:
    """Who keeps cases in files does not pay for the import of a driver."""
    code = "import sys, langgraph_handoff, langgraph_handoff.cli; print([n for n in sys.modules if n.startswith('psycopg')])"
    assert run_python(code) == "[]\n"


def run_python(code: str) -> str:
    """Run code in a process of its own and return what it printed."""
    paths = os.pathsep.join((str(Path(__file__).parents[2]), *(path for path in sys.path if path)))
    environment = {**os.environ, "PYTHONPATH": paths}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True).stdout


# Sessions.


def test_a_move_is_durable_and_isolated_whatever_the_server_s_defaults_are() -> None:
    """With a lazy commit and serializable transactions as defaults, the ledger's sessions still commit for good and see commits."""
    url = postgres.server().fresh()
    name = url.partition("?")[0].rpartition("/")[2]
    postgres.server().run(f"ALTER DATABASE {name} SET synchronous_commit = off")
    postgres.server().run(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    names = ("synchronous_commit", "default_transaction_isolation", "lock_timeout")
    with PostgresLedger(url) as held:
        ready = approved(held)
        with held._used() as connection:
            found = [connection.execute(f"SHOW {each}".encode()).fetchone() for each in names]
        assert found == [("on",), ("read committed",), ("10s",)]
        with ThreadPoolExecutor(6) as pool:
            outcomes = list(pool.map(lambda token: claim(held, ready, token), "abcdef"))
    assert len([each for each in outcomes if isinstance(each, WriteRecord)]) == 1


def claim(ledger: Ledger, ready: WriteRecord, token: str) -> WriteRecord | LedgerConflictError:
    """Start a row, or return the conflict."""
    try:
        return ledger.move(ready, "start", token=token)
    except LedgerConflictError as error:
        return error


def test_questions_that_are_asked_at_once_leave_one_row(ledger: PostgresLedger) -> None:
    """Of many calls that propose one write at once each gets the row as it stands, and only changes count as fresh."""
    gate = threading.Barrier(8)

    def ask(number: int) -> tuple[WriteRecord, bool]:
        gate.wait()
        return ledger.propose(proposal(call_id=f"call-{number % 4}"), seq=1)

    with ThreadPoolExecutor(8) as pool:
        asked = list(pool.map(ask, range(8)))
    (row,) = ledger.records()
    assert row.epoch == len([fresh for _, fresh in asked if fresh])
    assert len({record.epoch for record, fresh in asked if fresh}) == row.epoch


def test_a_ledger_of_a_newer_release_is_refused_and_left_as_it_is() -> None:
    """A ledger with a newer schema is not read, not changed, and named in the error."""
    url = postgres.server().fresh()
    with PostgresLedger(url) as held:
        held.propose(proposal(), seq=1)
    with psycopg.connect(url, autocommit=True) as other:
        other.execute("UPDATE langgraph_handoff.ledger_version SET version = 2")
    with pytest.raises(LedgerVersionError, match="has schema version 2; this code reads 1"):
        PostgresLedger(url).records()
    with psycopg.connect(url) as other:
        assert other.execute("SELECT count(*) FROM langgraph_handoff.handoff_ops").fetchone() == (1,)


def test_a_row_that_is_held_for_too_long_is_a_named_error(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """When somebody else holds a row, the move fails by name and changes nothing; it works once the row is free."""
    monkeypatch.setattr("langgraph_handoff.ledger.postgres._SESSION", "SET lock_timeout = '20ms'")
    with PostgresLedger(url) as held:
        row = approved(held)
        with blocked(url):
            with pytest.raises(LedgerError, match="lock timeout") as caught:
                held.move(row, "start")
            assert type(caught.value) is LedgerError
        assert held.get(row.op) == row
        assert held.move(row, "start").state == "executing"


async def test_a_cancelled_move_has_settled_when_its_caller_learns_of_it(ledger: PostgresLedger, url: str) -> None:
    """A cancellation arrives only after the commit, so that what is read then is what stays; and the loop runs on meanwhile."""
    row = approved(ledger)
    with blocked(url) as blocker:
        task = asyncio.create_task(ledger.amove(row, "start", token="mine"))
        await asyncio.to_thread(waiting, url)
        for _ in range(2):
            task.cancel()
            await asyncio.sleep(0)
        assert not task.done()
        blocker.rollback()
        with pytest.raises(asyncio.CancelledError):
            await task
    stored = await ledger.aget(row.op)
    assert stored is not None
    assert (stored.state, stored.token) == ("executing", "mine")


# A server that goes away.


def test_sessions_that_the_server_ended_are_replaced(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the server ended all sessions of a busy process, the next move is done over a new one, once, and without a pause."""
    monkeypatch.setattr("langgraph_handoff.postgres.WAIT", 2.0)  # less than the pool would take to try them one by one
    with PostgresLedger(url) as held:
        row = held.propose(proposal(), seq=1)[0]
        with ExitStack() as busy:
            for _ in range(6):
                busy.enter_context(held._used())
        with psycopg.connect(url, autocommit=True) as other:
            assert len(other.execute(END).fetchall()) >= 6
        assert held.move(row, "approve").state == "approved"
        with pytest.raises(LedgerConflictError):
            held.move(row, "approve")


def test_a_session_that_ends_in_the_middle_of_a_move_leaves_it_unsettled(ledger: PostgresLedger, url: str) -> None:
    """A move whose answer did not come says that nobody knows, not that nothing was written; the next one reads what is so."""
    row = approved(ledger)
    with blocked(url), ThreadPoolExecutor(1) as pool:
        moving = pool.submit(ledger.move, row, "start", token="mine")
        pid = waiting(url)
        with psycopg.connect(url, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s)", [pid])
        with pytest.raises(LedgerUnsettledError, match="was lost in the middle of a move") as caught:
            moving.result()
    assert "Nothing was written" not in str(caught.value)
    assert ledger.get(row.op) == row
    assert ledger.move(row, "start", token="mine").token == "mine"


def test_a_killed_server_is_a_named_error_and_forgets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the server is dead a ledger that was open says so; after the restart it has every move that had returned."""
    monkeypatch.setattr("langgraph_handoff.postgres.WAIT", 0.2)
    server = postgres.Server()
    try:
        with PostgresLedger(server.url()) as held:
            row = approved(held)
            server.kill()
            for use in (lambda: held.move(row, "start"), lambda: held.get(row.op), held.records):
                with pytest.raises(LedgerError, match=r"could not be used: .*(refused|No such file)"):
                    use()
            server.start()
        with PostgresLedger(server.url()) as held:
            assert held.records() == [row]
            assert held.move(row, "start").state == "executing"
    finally:
        server.stop()


# Processes.


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # Python 3.12 warns of forks beside threads
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_uses_connections_of_its_own(ledger: PostgresLedger) -> None:
    """A child that was forked beside an open ledger moves a row, and its parent's sessions live on."""
    row = approved(ledger)
    with ledger._used() as before:
        pid = before.info.backend_pid
        child = multiprocessing.get_context("fork").Process(target=ledger.move, args=(row, "start"))
        child.start()
        child.join(30)
    stored = ledger.get(row.op)
    assert (child.exitcode, stored and stored.state) == (0, "executing")
    with ledger._used() as after:
        assert after.info.backend_pid == pid


def _connect(url: str, gate: Any, outcomes: Any) -> None:
    gate.wait(30)
    try:
        with connect(url) as storage:
            outcomes.put(storage.ledger.records())
    except Exception as error:
        outcomes.put(repr(error))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork to start processes at the same moment")
def test_processes_that_open_a_new_database_together_do_not_disturb_each_other() -> None:
    """When several processes are the first to connect, each gets all its tables: none deadlocks or trips over another's."""
    for _ in range(5):
        assert run_together(6, _connect, postgres.server().fresh()) == [[]] * 6


def test_a_closed_ledger_opens_again_when_it_is_used(ledger: PostgresLedger) -> None:
    """Closing gives the connections back and forgets nothing."""
    row = approved(ledger)
    ledger.close()
    ledger.close()
    assert ledger.get(row.op) == row
