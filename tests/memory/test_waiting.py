"""Waiting for a verdict: woken at once in one process, soon from another, and quiet in between."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from langgraph.store.sqlite.aio import AsyncSqliteStore

from langgraph_handoff import CaseMemory, connect
from langgraph_handoff.errors import MemoryStoreError
from langgraph_handoff.memory import cases, waiting
from tests.memory.conftest import asking

LONG = 60.0
"""Seconds that no test waits: whoever waits so long is woken."""


def test_a_verdict_that_is_there_is_given_at_once(memory: CaseMemory) -> None:
    """The last verdict stands, and nobody waits for it."""
    handoff = asking(memory)
    memory.feedback(handoff_id=handoff, from_agent="rex", verdict="block")
    assert memory.await_verdict(handoff_id=handoff, timeout=0) == "block"
    memory.feedback(handoff_id=handoff, from_agent="rex", verdict="approve")
    assert memory.await_verdict(handoff_id=handoff, timeout=LONG) == "approve"


async def test_a_timeout_gives_none(memory: CaseMemory) -> None:
    """When the time is over there is no verdict, sync and async, however short the time."""
    handoff = asking(memory)
    for seconds in (0, -1, 0.02):
        assert memory.await_verdict(handoff_id=handoff, timeout=seconds) is None
        assert await memory.aawait_verdict(handoff_id=handoff, timeout=seconds) is None


@pytest.fixture
def asleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let waiters sleep until they are woken: their own looks come too late for any test."""
    monkeypatch.setattr(waiting, "_FIRST", LONG * 10)


@pytest.mark.usefixtures("asleep")
def test_a_waiter_of_the_same_store_is_woken(store: BaseStore) -> None:
    """A verdict given through another memory over the same store wakes a waiting thread."""
    handoff = asking(CaseMemory(store))
    with ThreadPoolExecutor(1) as pool:
        waiter = pool.submit(CaseMemory(store).await_verdict, handoff_id=handoff, timeout=LONG)
        listening(store)
        CaseMemory(store).feedback(handoff_id=handoff, from_agent="rex", verdict="block")
        assert waiter.result(LONG) == "block"


@pytest.mark.usefixtures("asleep")
async def test_an_async_waiter_is_woken_by_a_task_and_by_a_thread(store: BaseStore) -> None:
    """A verdict wakes a waiting task, whether a task or a thread gives it, and the loop was free meanwhile."""
    memory = CaseMemory(store)
    for way in ("task", "thread"):
        handoff = await memory.ahandoff(case_id="c", from_agent="ari", to_agent="rex", requested_action="review", content=way)
        waiter = asyncio.create_task(memory.aawait_verdict(handoff_id=handoff, timeout=LONG))
        await asyncio.to_thread(listening, store)
        given: dict[str, Any] = {"handoff_id": handoff, "from_agent": "rex", "verdict": "approve"}
        if way == "task":
            await memory.afeedback(**given)
        else:
            await asyncio.to_thread(memory.feedback, **given)
        assert await asyncio.wait_for(waiter, LONG) == "approve"


async def test_a_waiter_that_is_cancelled_leaves_nothing_behind(store: BaseStore) -> None:
    """A cancelled wait is over, and later verdicts ring for nobody."""
    memory = CaseMemory(store)
    handoff = asking(memory)
    waiter = asyncio.create_task(memory.aawait_verdict(handoff_id=handoff, timeout=None))
    await asyncio.to_thread(listening, store)
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert waiting.common_of(store)._ears == []


def test_a_waiter_on_another_connection_looks_by_itself(tmp_path: Path) -> None:
    """Where no bell rings, as between processes, a waiter notices what another connection wrote."""
    path = str(tmp_path / "cases.db")
    with connect(path) as mine, connect(path) as other:
        handoff = asking(CaseMemory(mine.store))
        with ThreadPoolExecutor(1) as pool:
            waiter = pool.submit(CaseMemory(mine.store).await_verdict, handoff_id=handoff, timeout=LONG)
            listening(mine.store)
            CaseMemory(other.store).feedback(handoff_id=handoff, from_agent="rex", verdict="request_changes")
            assert waiter.result(LONG) == "request_changes"


async def test_an_async_waiter_on_another_connection_looks_by_itself(tmp_path: Path) -> None:
    """So does a waiting task."""
    path = str(tmp_path / "cases.db")
    with connect(path) as mine, connect(path) as other:
        handoff = asking(CaseMemory(mine.store))
        waiter = asyncio.create_task(CaseMemory(mine.store).aawait_verdict(handoff_id=handoff, timeout=LONG))
        await asyncio.to_thread(listening, mine.store)
        await CaseMemory(other.store).afeedback(handoff_id=handoff, from_agent="rex", verdict="block")
        assert await waiter == "block"


def test_while_nothing_is_written_a_look_is_no_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On SQLite a waiter asks for the verdict once, and again only after somebody has written."""
    path = str(tmp_path / "cases.db")
    with connect(path) as mine, connect(path) as other:
        memory, elsewhere = CaseMemory(mine.store), CaseMemory(other.store)
        handoff = asking(memory)
        queries: list[str] = []
        writes: dict[int, Callable[[], object]] = {
            5: lambda: elsewhere.record(case_id="c", entry_type="fact", agent="x", content="y"),
            9: lambda: elsewhere.feedback(handoff_id=handoff, from_agent="rex", verdict="approve"),
        }

        def steps(_timeout: float | None, *, marked: bool) -> Iterator[float]:
            assert marked
            queries.clear()
            for step in range(12):
                writes.get(step, lambda: None)()
                yield 0.0

        monkeypatch.setattr(cases, "pauses", steps)
        mine.store.conn.set_trace_callback(lambda query: queries.append(query))  # type: ignore[attr-defined]
        assert memory.await_verdict(handoff_id=handoff) == "approve"
        assert len([query for query in queries if "data_version" in query]) == 10
        assert len([query for query in queries if "SELECT s.value" in query]) == 2


def test_pauses_grow_and_end_with_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiter looks often at first, then four times a second, where a look is a query once a second, and never past its time."""
    for marked, longest in ((True, 0.25), (False, 1.0)):
        found = list(islice(waiting.pauses(None, marked=marked), 30))
        assert found == sorted(found)
        assert (found[0], found[-1]) == (0.005, longest)
    clock = iter(accumulate(waiting.pauses(None, marked=True), initial=100.0))
    monkeypatch.setattr(waiting.time, "monotonic", lambda: next(clock))
    spent = list(waiting.pauses(30.0, marked=True))
    assert sum(spent) == pytest.approx(30.0, abs=0.3)
    assert len(spent) < 140


async def test_memory_in_memory_needs_no_thread() -> None:
    """Over the host's store in memory the async twins run where they are called."""
    threads: set[int] = set()

    class Watched(InMemoryStore):
        def batch(self, ops: Any) -> Any:
            threads.add(threading.get_ident())
            return super().batch(ops)

    memory = CaseMemory(Watched())
    await memory.arecord(case_id="c", entry_type="fact", agent="a", content="x")
    assert len(await memory.arecall(case_id="c", query="x")) == 1
    assert threads == {threading.get_ident()}


async def test_every_method_has_an_async_twin_over_an_async_store(tmp_path: Path) -> None:
    """Over the host's async SQLite store the twins do it all, and a sync call in its loop is refused, not stuck."""
    async with AsyncSqliteStore.from_conn_string(str(tmp_path / "cases.db")) as store:
        memory = CaseMemory(store)
        handoff = await memory.ahandoff(
            case_id="case-1", from_agent="ari", to_agent="rex", requested_action="approve", content="Refund?", entry_id="h-1"
        )
        await memory.arecord(case_id="case-1", entry_type="trace", agent="ari", content="a $400 goodwill credit")
        (waiting_one,) = await memory.areceive_handoffs(agent_id="rex")
        waiter = asyncio.create_task(memory.aawait_verdict(handoff_id=waiting_one.entry_id, timeout=LONG))
        await memory.afeedback(handoff_id=handoff, from_agent="rex", verdict="block", comments="Check for credits.")
        assert await waiter == "block"
        assert [entry.entry_type for entry in await memory.arecall(case_id="case-1", query="goodwill")] == ["trace"]
        assert [lesson.content for lesson in await memory.areflect(case_id="case-1")] == ["Check for credits."]
        await memory.alink("case-1", "case-2")
        assert await memory.alinked("case-2") == ["case-1"]
        assert [(each.case_id, each.entries, each.open) for each in await memory.acases()] == [("case-1", 4, 0)]
        assert [len(found) for found in (await memory.anotes(agent_id="ari", case_id="case-1")).values()] == [0, 1, 1]
        with pytest.raises(MemoryStoreError, match="await the twin"):
            memory.cases()
        with pytest.raises(MemoryStoreError, match="await the twin"):
            memory.await_verdict(handoff_id=handoff)


def listening(store: BaseStore) -> None:
    """Return when somebody waits for the store's bell."""
    common, pause = waiting.common_of(store), threading.Event()
    while not common._ears:
        pause.wait(0.005)
