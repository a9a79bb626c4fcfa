"""One run at a time on a thread."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from langgraph_handoff import connect
from langgraph_handoff.errors import ThreadBusyError
from langgraph_handoff.storage import Storage
from langgraph_handoff.testing import history_faults
from tests.conftest import ADDRESSES, Desk, say


def test_a_second_run_on_a_thread_is_refused_and_nothing_is_lost(desk: Desk, storage: Storage, config: Any) -> None:
    """While a run works on a thread another is refused by name; the first one's turn is whole, and the next turn works."""
    inside, leave = threading.Event(), threading.Event()

    def slow(_: Any) -> str:
        inside.set()
        assert leave.wait(30)
        return "slow answer"

    graph = desk(storage=storage, alice={"turns": [slow, "next answer"]})
    first = threading.Thread(target=graph.invoke, args=(say("first"), config))
    first.start()
    assert inside.wait(30)
    with pytest.raises(ThreadBusyError, match="case-1"):
        graph.invoke(say("second"), config)
    other: Any = {"configurable": {"thread_id": "case-2"}}
    assert graph.invoke(say("elsewhere"), other)["messages"][-1].text == "next answer"
    leave.set()
    first.join(30)
    talk = graph.get_state(config).values["messages"]
    assert [m.text for m in talk] == ["first", "slow answer"]
    assert history_faults(talk) == []


async def test_concurrent_async_runs_on_a_thread_are_refused(desk: Desk, storage: Storage, config: Any) -> None:
    """Of several async runs started at once on a thread one works and the others are refused; no turn is mixed."""
    graph = desk(storage=storage, alice={"turns": ["answer"] * 5})
    out = await asyncio.gather(*(graph.ainvoke(say(str(n)), config) for n in range(5)), return_exceptions=True)
    done = [each for each in out if not isinstance(each, BaseException)]
    assert done
    assert all(isinstance(each, ThreadBusyError) for each in out if isinstance(each, BaseException))
    talk = graph.get_state(config).values["messages"]
    assert len(talk) == 2 * len(done)


@pytest.mark.parametrize("way", ["error", "closed"])
def test_a_run_that_ends_early_gives_its_lease_back(desk: Desk, storage: Storage, config: Any, way: str) -> None:
    """After a model's exception, or a stream that its reader left, the thread is free at once."""

    def broken(_: Any) -> str:
        raise RuntimeError("provider is down")

    graph = desk(storage=storage, alice={"turns": [broken if way == "error" else "fine", "fine"]})
    if way == "error":
        with pytest.raises(RuntimeError):
            graph.invoke(say("hi"), config)
    else:
        stream = graph.stream(say("hi"), config, stream_mode="updates")
        next(stream)
        stream.close()
    assert graph.invoke(say("again"), config)["messages"][-1].text == "fine"


async def test_an_async_stream_that_its_reader_left_frees_the_thread(desk: Desk, storage: Storage, config: Any) -> None:
    """A reader that leaves an async stream in the middle can start the next run on the thread."""
    graph = desk(storage=storage, alice={"turns": ["one", "two", "three"]})
    async for _ in graph.astream(say("hi"), config, stream_mode="updates"):
        break
    assert (await graph.ainvoke(say("again"), config))["messages"][-1].text in ("one", "two")


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_two_graphs_over_one_database_share_its_leases(desk: Desk, tmp_path: Path, config: Any, kind: str) -> None:
    """Two storages of one file or database, as two workers have them, refuse each other's runs on one thread."""
    address = ADDRESSES[kind](tmp_path)
    with connect(address) as one, connect(address) as two:
        second = desk(storage=two, alice={"turns": ["x"]})

        def nosy(_: Any) -> str:
            with pytest.raises(ThreadBusyError):
                second.invoke(say("me too"), config)
            return "mine"

        first = desk(storage=one, alice={"turns": [nosy]})
        assert first.invoke(say("hi"), config)["messages"][-1].text == "mine"
