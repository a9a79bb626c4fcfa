"""Graphs over Postgres: with `connect`, and with the host's own savers."""

from __future__ import annotations

import asyncio
import contextlib
import traceback
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver, ShallowPostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver, AsyncShallowPostgresSaver
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from langgraph_handoff import Agent, aconnect, adecide, connect, create_handoff_graph, decide, privileged
from langgraph_handoff.beside import abeside, beside
from langgraph_handoff.errors import ThreadBusyError
from langgraph_handoff.ledger import open_ledger
from langgraph_handoff.ledger.postgres import PostgresLedger
from langgraph_handoff.testing import ScriptedChatModel, call
from tests import postgres
from tests.conftest import say

KEYWORDS: dict[str, Any] = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
ran: list[str] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ran.clear()


@pytest.fixture
def url() -> str:
    """The address of a database that is empty."""
    return postgres.server().empty()


def pay(order: str) -> str:
    """Pay an order."""
    ran.append(order)
    return f"paid {order}"


def graph_of(**compiled: Any) -> Any:
    """Return a graph whose agent pays an order and says so."""
    model = ScriptedChatModel([call("pay", order="A"), "done"], agent="alice")
    alice = Agent(name="alice", description="Pays", model=model, tools=[privileged(pay)])
    return create_handoff_graph([alice], default_active_agent="alice").compile(**compiled)


def states(url: str) -> list[str]:
    """Return what the ledger in a database says of its rows."""
    with open_ledger(url) as ledger:
        return [record.state for record in ledger.records()]


# The host's own savers.


@contextmanager
def pooled(url: str) -> Iterator[PostgresSaver]:
    """A saver over a pool."""
    with ConnectionPool(url, kwargs=KEYWORDS, min_size=1, max_size=2, open=True) as pool:
        yield PostgresSaver(pool)  # type: ignore[arg-type]


@asynccontextmanager
async def apooled(url: str) -> AsyncIterator[AsyncPostgresSaver]:
    """An async saver over a pool."""
    async with AsyncConnectionPool(url, kwargs=KEYWORDS, min_size=1, max_size=2, open=False) as pool:
        yield AsyncPostgresSaver(pool)  # type: ignore[arg-type]


SAVERS: dict[str, Callable[[str], AbstractContextManager[Any]]] = {
    "connection": PostgresSaver.from_conn_string,
    "pipeline": lambda url: PostgresSaver.from_conn_string(url, pipeline=True),
    "pool": pooled,
}
ASYNC_SAVERS: dict[str, Callable[[str], AbstractAsyncContextManager[Any]]] = {
    "connection": AsyncPostgresSaver.from_conn_string,
    "pipeline": lambda url: AsyncPostgresSaver.from_conn_string(url, pipeline=True),
    "pool": apooled,
}


@pytest.mark.parametrize("kind", SAVERS)
def test_a_saver_of_the_host_finds_its_ledger_and_its_leases(url: str, config: Any, kind: str) -> None:
    """A graph compiled with nothing but a saver writes once, by a ledger in the same database, under leases of that database."""
    with SAVERS[kind](url) as saver:
        saver.setup()
        graph = graph_of(checkpointer=saver)
        graph.invoke(say("pay"), config)
        assert (ran, states(url)) == ([], ["proposed"])
        near = beside(saver)
        assert near is not None
        with connect(url) as other, near.leases.hold("case-1"), pytest.raises(ThreadBusyError):
            graph_of(storage=other).invoke(say("pay"), config)
        out = decide(graph, config, "approve", by="ana")
        near.ledger.close()
        near.leases.close()
    assert (out["messages"][-1].text, ran, states(url)) == ("done", ["A"], ["done"])


@pytest.mark.parametrize("kind", ASYNC_SAVERS)
async def test_an_async_saver_of_the_host_finds_its_ledger_and_its_leases(url: str, config: Any, kind: str) -> None:
    """The same with the host's async saver."""
    async with ASYNC_SAVERS[kind](url) as saver:
        await saver.setup()
        graph = graph_of(checkpointer=saver)
        await graph.ainvoke(say("pay"), config)
        assert (ran, await asyncio.to_thread(states, url)) == ([], ["proposed"])
        near = await abeside(saver)
        assert near is not None
        async with aconnect(url) as other, near.leases.ahold("case-1"):
            with pytest.raises(ThreadBusyError):
                await graph_of(storage=other).ainvoke(say("pay"), config)
        out = await adecide(graph, config, "approve", by="ana")
        await near.ledger.aclose()
        near.leases.close()
    assert (out["messages"][-1].text, ran, await asyncio.to_thread(states, url)) == ("done", ["A"], ["done"])


async def test_an_async_saver_serves_sync_runs_of_other_threads(url: str, config: Any) -> None:
    """A sync run in a thread, over the host's async saver, has its ledger and its lease too."""
    async with apooled(url) as saver:
        await saver.setup()
        graph = graph_of(checkpointer=saver)
        await asyncio.to_thread(graph.invoke, say("pay"), config)
        out = await asyncio.to_thread(decide, graph, config, "approve", by="ana")
    assert (out["messages"][-1].text, ran, await asyncio.to_thread(states, url)) == ("done", ["A"], ["done"])


@pytest.mark.parametrize("way", ["sync", "async"])
async def test_a_shallow_saver_finds_its_ledger(url: str, way: str) -> None:
    """Savers that keep the last checkpoint only are known too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the host deprecates them
        if way == "sync":
            with ShallowPostgresSaver.from_conn_string(url) as saver:
                near = beside(saver)
        else:
            async with AsyncShallowPostgresSaver.from_conn_string(url) as asaver:
                near = await abeside(asaver)
    assert near is not None
    assert isinstance(near.ledger, PostgresLedger)


def test_an_address_in_a_pool_s_keywords_is_found(url: str) -> None:
    """A pool may be told its database in parts; the password in them opens the ledger and is in no text of it."""
    given = psycopg.conninfo.conninfo_to_dict(url)
    with ConnectionPool("", kwargs={**KEYWORDS, **given, "password": "secret"}, min_size=0, max_size=1, open=True) as pool:
        near = beside(PostgresSaver(pool))  # type: ignore[arg-type]
    assert near is not None
    assert near.ledger.records() == []
    assert "secret" not in near.ledger.location
    near.ledger.close()


def test_the_environment_may_name_a_ledger_in_postgres(url: str, config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """HANDOFF_LEDGER_URL puts the ledger of a graph with any saver into Postgres."""
    monkeypatch.setenv("HANDOFF_LEDGER_URL", url)
    with connect(":memory:") as storage:
        graph = graph_of(checkpointer=storage.checkpointer)
        graph.invoke(say("pay"), config)
        decide(graph, config, "approve", by="ana")
    assert (ran, states(url)) == (["A"], ["done"])


# With `connect`.


@pytest.mark.parametrize("way", ["sync", "async"])
async def test_an_approved_write_happens_once_and_stands_in_the_database(url: str, config: Any, way: str) -> None:
    """What one storage stored another one goes on from; sync and async runs of one storage share its cases."""
    async with aconnect(url) as first:
        await graph_of(storage=first).ainvoke(say("pay"), config)
    with connect(url) as second:
        graph = graph_of(storage=second)
        graph.desk.catalog.agents["alice"].model.invoke("the first turn was taken by another process")
        out = await adecide(graph, config, "approve", by="ana") if way == "async" else decide(graph, config, "approve", by="ana")
        assert (out["messages"][-1].text, ran, states(url)) == ("done", ["A"], ["done"])
        assert graph.invoke(None, config)["messages"][-1].text == "done"
    assert ran == ["A"]


def test_the_store_is_in_the_database_too(url: str) -> None:
    """What is put into one storage's store is found in another one's, by sync and async callers."""
    with connect(url) as one, connect(url) as two:
        one.store.put(("cases",), "k", {"text": "Grüße"})
        found = two.store.get(("cases",), "k")
        again = asyncio.run(two.store.aget(("cases",), "k"))
    assert found is not None
    assert again is not None
    assert found.value == again.value == {"text": "Grüße"}


@pytest.mark.parametrize("kind", ["connect", "host"])
async def test_an_async_run_does_not_block_the_loop(url: str, config: Any, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No statement is sent and no connection is asked for in the loop's own thread: not by ledger, leases, saver or storage."""
    blocking: list[str] = []

    def watched(original: Any) -> Any:
        def watching(*args: Any, **kwargs: Any) -> Any:
            with contextlib.suppress(RuntimeError):
                asyncio.get_running_loop()
                blocking.append("".join(traceback.format_stack(limit=6)))
            return original(*args, **kwargs)

        return watching

    for owner, name in (
        (psycopg.Cursor, "execute"),
        (psycopg.Cursor, "executemany"),
        (psycopg.Connection, "connect"),
        (ConnectionPool, "getconn"),
    ):
        monkeypatch.setattr(owner, name, watched(getattr(owner, name)))
    async with aconnect(url) if kind == "connect" else apooled(url) as opened:
        if isinstance(opened, AsyncPostgresSaver):
            await opened.setup()
        graph = graph_of(storage=opened) if kind == "connect" else graph_of(checkpointer=opened)
        await graph.ainvoke(say("pay"), config)
        out = await adecide(graph, config, "approve", by="ana")
    assert out["messages"][-1].text == "done"
    assert blocking == []
