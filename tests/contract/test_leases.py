"""One contract for all leases."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from langgraph_handoff.errors import LedgerError, ThreadBusyError
from langgraph_handoff.lease import FileLeases, Leases, MemoryLeases
from langgraph_handoff.lease_postgres import PostgresLeases
from tests import postgres

BACKENDS: dict[str, Callable[[Path], Leases]] = {
    "memory": lambda folder: MemoryLeases(),
    "files": lambda folder: FileLeases(folder / "locks"),
    "postgres": lambda folder: PostgresLeases(postgres.server().url()),
}
SHARED = ("files", "postgres")
ENDED = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


@pytest.fixture(params=BACKENDS)
def leases(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Leases]:
    """Leases of each kind, of which none is held."""
    made = BACKENDS[request.param](tmp_path)
    yield made
    made.close()


@pytest.fixture(params=SHARED)
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Leases]]:
    """Make leases that hold in several processes, as each of these makes its own."""
    made: list[Leases] = []

    def make() -> Leases:
        made.append(BACKENDS[request.param](tmp_path))
        return made[-1]

    yield make
    for each in made:
        each.close()


def held(leases: Leases, thread_id: str) -> bool:
    """Return whether somebody holds a thread's lease."""
    try:
        with leases.hold(thread_id):
            return False
    except ThreadBusyError:
        return True


def until_free(leases: Leases, thread_id: str) -> None:
    """Wait until nobody holds a thread's lease."""
    deadline = time.monotonic() + 30
    while held(leases, thread_id):
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.parametrize("name", ["t", "", "caf\udce9", "a\x00b", "x" * 5000])
def test_a_held_lease_is_refused_and_others_are_free(leases: Leases, name: str) -> None:
    """While a run holds a thread another one is refused by name; other threads are free, and so is this one afterwards."""
    with leases.hold(name):
        assert held(leases, name)
        assert not held(leases, name + "'")
        assert held(leases, name)
    assert not held(leases, name)


async def test_the_async_way_is_the_same(leases: Leases) -> None:
    """Async runs exclude each other and sync ones."""
    async with leases.ahold("t"):
        assert await asyncio.to_thread(held, leases, "t")
        with pytest.raises(ThreadBusyError):
            async with leases.ahold("t"):
                pass
    async with leases.ahold("t"):
        pass


def test_a_run_that_fails_gives_its_lease_back(leases: Leases) -> None:
    """After an exception the thread is free."""
    with pytest.raises(RuntimeError), leases.hold("t"):
        raise RuntimeError
    assert not held(leases, "t")


async def test_a_run_that_is_cancelled_while_it_takes_a_lease_does_not_keep_it(
    leases: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lease that arrives when nobody waits for it any more is given back."""
    take, asked, arrive = leases.take, threading.Event(), threading.Event()

    def slow(thread_id: str) -> object:
        asked.set()
        assert arrive.wait(30)
        return take(thread_id)

    async def run() -> None:
        async with leases.ahold("t"):
            raise AssertionError

    monkeypatch.setattr(leases, "take", slow)
    running = asyncio.create_task(run())
    assert await asyncio.to_thread(asked.wait, 30)
    running.cancel()
    arrive.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    monkeypatch.setattr(leases, "take", take)
    await asyncio.to_thread(until_free, leases, "t")


def test_two_workers_exclude_each_other(shared: Callable[[], Leases]) -> None:
    """Leases of one place know each other, whoever made them."""
    one, two = shared(), shared()
    with one.hold("t"):
        assert held(two, "t")
        assert not held(two, "u")
    assert not held(two, "t")


HOLDER = """
import sys, time
from langgraph_handoff.lease import FileLeases
from langgraph_handoff.lease_postgres import PostgresLeases
kind, place = sys.argv[1:]
with {"files": FileLeases, "postgres": PostgresLeases}[kind](place).hold("t"):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("kind", SHARED)
def test_a_killed_process_gives_its_lease_back(tmp_path: Path, kind: str) -> None:
    """A lease that another process holds is refused; when that process is killed it is free, without a time-out."""
    place = str(tmp_path / "locks") if kind == "files" else postgres.server().url()
    paths = os.pathsep.join((str(Path(__file__).parents[2]), *(path for path in sys.path if path)))
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, kind, place], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": paths}
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        leases = BACKENDS[kind](tmp_path)
        assert held(leases, "t")
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
    until_free(leases, "t")  # the server hears of it a moment after the system does
    leases.close()


def _child(leases: Leases, outcome: int) -> None:
    """Tell how the parent's thread is found, and die with a lease of one's own."""
    os.write(outcome, b"held" if held(leases, "t") else b"free")
    leases.take("u")
    os._exit(0)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # Python 3.12 warns of forks beside threads
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_does_not_hold_its_parent_s_leases(shared: Callable[[], Leases]) -> None:
    """A child finds its parent's lease held; its end frees its own leases and nothing of its parent's."""
    leases = shared()
    read, write = os.pipe()
    with leases.hold("t"):
        child = multiprocessing.get_context("fork").Process(target=_child, args=(leases, write))
        child.start()
        child.join(30)
        assert (child.exitcode, os.read(read, 4)) == (0, b"held")
        assert held(shared(), "t")
        until_free(shared(), "u")
    assert not held(shared(), "t")
    os.close(read)
    os.close(write)


# Postgres.


def test_a_session_that_the_server_ended_is_taken_up_again() -> None:
    """After the server ended the session, the next lease is taken over a new one, and what is still held is held again."""
    url = postgres.server().url()
    one, two = PostgresLeases(url), PostgresLeases(url)
    with one.hold("t"):
        with psycopg.connect(url, autocommit=True) as other:
            assert other.execute(ENDED).fetchall()
        with one.hold("u"):
            assert held(two, "t")
            assert held(two, "u")
    assert not held(two, "t")
    one.close()
    two.close()


def test_a_lease_is_given_back_when_its_session_is_lost() -> None:
    """A run whose session was ended meanwhile ends without an error of its lease, and its thread is free."""
    url = postgres.server().url()
    leases = PostgresLeases(url)
    with leases.hold("t"), psycopg.connect(url, autocommit=True) as other:
        other.execute(ENDED)
    assert not held(leases, "t")
    leases.close()


def test_a_server_that_does_not_answer_is_a_named_error() -> None:
    """Without a server there is no lease, and the error says so."""
    with pytest.raises(LedgerError, match=r"postgresql://127\.0\.0\.1:1/x could not be used: .*refused"):
        PostgresLeases("postgresql://ana:secret@127.0.0.1:1/x").take("t")


def test_runs_of_a_process_share_one_session() -> None:
    """A process with a hundred runs has one session for their leases."""
    url = postgres.server().fresh()
    leases = PostgresLeases(url)
    taken = [leases.take(str(number)) for number in range(100)]
    count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    with psycopg.connect(url) as other:
        assert other.execute(count).fetchone() == (1,)
        assert other.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").fetchone() == (len(taken),)
    for number, each in enumerate(taken):
        leases.give(str(number), each)
    with psycopg.connect(url) as other:
        assert other.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").fetchone() == (0,)
    leases.close()
