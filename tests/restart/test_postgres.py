"""Postgres when things die: processes, sessions, the server itself."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from langgraph_handoff import Agent, adecide, connect, create_handoff_graph, decide, privileged
from langgraph_handoff.errors import HandoffError, LedgerError, ThreadBusyError
from langgraph_handoff.lease_postgres import PostgresLeases
from langgraph_handoff.storage import Storage
from langgraph_handoff.testing import ScriptedChatModel, call, history_faults
from tests import postgres
from tests.conftest import say

CONFIG: Any = {"configurable": {"thread_id": "case"}}
END = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),  # Python 3.12 warns of forks beside threads
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
]
FORK: Any = multiprocessing.get_context("fork") if hasattr(os, "fork") else None


def graph_of(storage: Storage, world: Path, inside: Callable[[], object] = lambda: None) -> Any:
    """Return a graph whose agent pays order A by adding a line to a file, whoever of its processes that is."""

    def pay(order: str) -> str:
        """Pay an order."""
        inside()
        with world.open("a") as lines:
            lines.write(order + "\n")
        return f"paid {order}"

    # Known by what was said, since each process has a script of its own.
    turn = lambda prompt: "done" if any(each.type == "tool" for each in prompt) else call("pay", order="A")  # noqa: E731
    model = ScriptedChatModel([turn], loop=True, agent="alice")
    alice = Agent(name="alice", description="Pays", model=model, tools=[privileged(pay)])
    return create_handoff_graph([alice], default_active_agent="alice").compile(storage=storage)


@pytest.fixture
def url() -> str:
    """The address of a database that is empty."""
    return postgres.server().empty()


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """The file of what was paid."""
    (tmp_path / "world").touch()
    return tmp_path / "world"


def approve(url: str, world: Path, gate: Any, outcomes: Any) -> None:
    """Approve what is open, in a process of its own, when all are ready."""
    with connect(url) as storage:
        graph = graph_of(storage, world)
        gate.wait(30)
        try:
            outcomes.put(decide(graph, CONFIG, "approve", by="ana")["messages"][-1].text)
        except Exception as error:
            outcomes.put(type(error))


@pytest.mark.parametrize("guarded", [True, False], ids=["leases", "no leases"])
def test_processes_that_resume_one_question_write_once(
    url: str, world: Path, guarded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of four processes that approve one write at once, one writes; the others end with it or are refused by name."""
    if not guarded:  # as on a thread that was copied: the ledger alone must do
        monkeypatch.setattr(PostgresLeases, "take", lambda self, thread_id: None)
    with connect(url) as storage:
        graph_of(storage, world).invoke(say("pay"), CONFIG)
    gate, outcomes = FORK.Barrier(4), FORK.Queue()
    workers = [FORK.Process(target=approve, args=(url, world, gate, outcomes)) for _ in range(4)]
    for each in workers:
        each.start()
    found = [outcomes.get(timeout=60) for _ in workers]
    for each in workers:
        each.join(60)
    assert world.read_text() == "A\n"
    assert "done" in found
    assert all(each == "done" or issubclass(each, HandoffError) for each in found)
    with connect(url) as storage:
        assert [record.state for record in storage.ledger.records()] == ["done"]


def stuck(url: str, world: Path, inside: Any) -> None:
    """Approve what is open and never come back from the tool."""
    with connect(url) as storage:
        decide(graph_of(storage, world, lambda: (inside.set(), threading.Event().wait(60))), CONFIG, "approve", by="ana")


def test_a_killed_run_frees_its_thread_at_once_and_its_write_is_asked_about(url: str, world: Path) -> None:
    """While a run is in its tool the thread is busy; when it is killed, the next run works and asks what became of the write."""
    inside = FORK.Event()
    with connect(url) as storage:
        graph_of(storage, world).invoke(say("pay"), CONFIG)
    worker = FORK.Process(target=stuck, args=(url, world, inside))
    worker.start()
    assert inside.wait(30)
    with connect(url) as storage:
        graph = graph_of(storage, world)
        with pytest.raises(ThreadBusyError):
            graph.invoke(None, CONFIG)
        worker.kill()
        worker.join(30)
        while True:
            try:
                graph.invoke(None, CONFIG)
                break
            except ThreadBusyError:  # the server hears of it a moment after the system does
                continue
        assert graph.get_state(CONFIG).interrupts[0].value["handoff"]["kind"] == "unknown"
        assert decide(graph, CONFIG, "did_not_happen", by="ana")["messages"][-1].text == "done"
    assert world.read_text() == "A\n"


@pytest.fixture
def own_server() -> Iterator[postgres.Server]:
    """A server that a test may kill."""
    server = postgres.Server()
    yield server
    server.stop()


def resume(graph: Any, way: str) -> Any:
    """Approve, in one of the two ways."""
    if way == "async":
        return asyncio.run(adecide(graph, CONFIG, "approve", by="ana"))
    return decide(graph, CONFIG, "approve", by="ana")


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("event", ["approve", "start", "finish"])
def test_a_server_that_is_killed_around_a_write_loses_and_repeats_nothing(
    own_server: postgres.Server, world: Path, event: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before the approval, before the claim or before the result is stored: a typed error, and one write in the end."""
    with monkeypatch.context() as patience:
        patience.setattr("langgraph_handoff.postgres.WAIT", 0.2)
        with connect(own_server.url()) as storage:
            graph, move = graph_of(storage, world), storage.ledger.move
            graph.invoke(say("pay"), CONFIG)

            def killing(record: Any, moved: str, **changes: Any) -> Any:
                if moved == event:
                    own_server.kill()
                return move(record, moved, **changes)

            storage.ledger.move = killing  # type: ignore[method-assign]
            with pytest.raises(LedgerError):
                resume(graph, way)
            with pytest.raises((LedgerError, psycopg.OperationalError)):
                graph.invoke(None, CONFIG)
    assert world.read_text() == ("A\n" if event == "finish" else "")
    own_server.start()
    with connect(own_server.url()) as storage:
        graph = graph_of(storage, world)
        out, asked = graph.invoke(None, CONFIG), []
        for each in iter(lambda: graph.get_state(CONFIG).interrupts, ()):
            asked.append(each[0].value["handoff"]["kind"])
            out = decide(graph, CONFIG, "done" if asked[-1] == "unknown" else "approve", by="ana")
        assert [record.state for record in storage.ledger.records()] == ["done"]
    assert asked == {"approve": ["write"], "start": [], "finish": ["unknown"]}[event]
    assert out["messages"][-1].text == "done"
    assert history_faults(out["messages"]) == []
    assert world.read_text() == "A\n"


@pytest.mark.parametrize("way", ["sync", "async"])
def test_sessions_that_end_between_all_steps_are_replaced_and_nothing_happens_twice(url: str, world: Path, way: str) -> None:
    """When the server ends every session before each move and each checkpoint, the case goes on over new ones to its one write."""
    with connect(url) as storage, psycopg.connect(url, autocommit=True) as other:
        graph, ended = graph_of(storage, world), 0
        alone = threading.RLock()  # sessions end between operations here, not within one that another thread is at

        def wrapped(original: Any, *, cut: bool) -> Any:
            def first(*args: Any, **kwargs: Any) -> Any:
                nonlocal ended
                with alone:
                    ended += len(other.execute(END).fetchall()) if cut else 0
                    return original(*args, **kwargs)

            return first

        cuts = {storage.ledger: ("move", "propose"), storage.checkpointer: ("put",)}
        others = {storage.ledger: ("get", "records", "latest_checkpoint"), storage.checkpointer: ("put_writes", "get_tuple")}
        for things in (cuts, others):
            for thing, names in things.items():
                for name in names:
                    setattr(thing, name, wrapped(getattr(thing, name), cut=things is cuts))
        graph.invoke(say("pay"), CONFIG)
        out = resume(graph, way)
        assert [record.state for record in storage.ledger.records()] == ["done"]
    assert ended >= 8
    assert out["messages"][-1].text == "done"
    assert world.read_text() == "A\n"
