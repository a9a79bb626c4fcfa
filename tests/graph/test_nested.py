"""A handoff graph as a node of somebody else's graph."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command

from langgraph_handoff import Agent, HandoffState, adecide, create_handoff_graph, decide, privileged
from langgraph_handoff.testing import ScriptedChatModel, call
from tests.conftest import run, say

ran: list[Any] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ran.clear()


def pay(order: str) -> str:
    """Pay an order."""
    ran.append(order)
    return "paid"


def parent(saver: Any, tool: Any = pay, **options: Any) -> Any:
    """Put a desk of one agent into a plain graph; only the parent has a checkpointer."""
    alice = Agent(
        name="alice",
        description="alice's work",
        model=ScriptedChatModel([call("pay", order="A"), "done"], agent="alice"),
        tools=[privileged(tool, **options)],
    )
    inner = create_handoff_graph([alice], default_active_agent="alice").compile()
    builder = StateGraph(MessagesState)
    builder.add_node("desk", inner)
    builder.add_edge(START, "desk")
    return builder.compile(checkpointer=saver)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_the_ledger_is_found_beside_the_outer_saver(config: Any, tmp_path: Path, kind: str) -> None:
    """A gated write inside a plain parent graph asks through it, is answered through it, and uses the ledger beside its saver."""
    with SqliteSaver.from_conn_string(str(tmp_path / "cases.db")) as sqlite:
        graph = parent(sqlite if kind == "sqlite" else InMemorySaver())
        graph.invoke(say("hi"), config)
        (asked,) = graph.get_state(config).interrupts
        assert asked.value["handoff"]["kind"] == "write"
        out = decide(graph, config, "approve", by="ana")
    assert (out["messages"][-1].text, ran) == ("done", ["A"])
    assert (tmp_path / "cases.ledger.db").exists() is (kind == "sqlite")


async def test_the_ledger_is_found_beside_the_outer_async_saver(config: Any, tmp_path: Path) -> None:
    """The same with the host's async SQLite saver."""
    async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "cases.db")) as saver:
        graph = parent(saver)
        await graph.ainvoke(say("hi"), config)
        out = await adecide(graph, config, "approve", by="ana")
    assert (out["messages"][-1].text, ran) == ("done", ["A"])
    assert (tmp_path / "cases.ledger.db").exists()


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_a_write_without_a_person_waits_for_its_checkpoint(config: Any, durability: Any, way: str) -> None:
    """A write that a rule lets through begins when the checkpoint with its call is stored, whatever durability the parent has."""

    class Slow(InMemorySaver):
        def put(self, *args: Any, **kwargs: Any) -> Any:
            time.sleep(0.05)  # long enough for a write that does not wait to overtake it
            return super().put(*args, **kwargs)

    saver = Slow()

    def watched(order: str) -> str:
        """Pay an order."""
        stored = [each.checkpoint["channel_values"] for each in saver.list(config)]
        calls = [m.tool_calls for values in stored for m in values.get("messages", []) if getattr(m, "tool_calls", None)]
        goals = [values for values in stored if any(key.startswith("branch:to:write") for key in values)]
        ran.append(bool(goals or calls))
        return "paid"

    watched.__name__ = "pay"
    graph = parent(saver, watched, when=lambda args: False)
    if way == "async":
        out = await graph.ainvoke(say("hi"), config, durability=durability)
    else:
        out = graph.invoke(say("hi"), config, durability=durability)
    assert (out["messages"][-1].text, ran) == ("done", [True])


def test_a_bare_answer_reaches_the_desk_through_the_parent(config: Any) -> None:
    """Any client may answer the parent's interrupt in LangChain's form."""
    graph = parent(InMemorySaver())
    graph.invoke(say("hi"), config)
    out = graph.invoke(Command(resume={"decisions": [{"type": "reject", "message": "no"}]}), config)
    assert (out["messages"][-1].text, ran) == ("done", [])


class SlowSaver(InMemorySaver):
    """Stores a checkpoint late, as a busy disk does."""

    def put(self, *args: Any, **kwargs: Any) -> Any:
        """Store."""
        time.sleep(0.05)
        return super().put(*args, **kwargs)

    def owners(self) -> set[Any]:
        """Everybody who is stored as an owner."""
        return {each.checkpoint["channel_values"].get("active_agent") for each in self.list(None)}


def outside(desk: Any, saver: Any) -> Any:
    """Return a plain graph with the desk as its only node."""
    outer = StateGraph(HandoffState)
    outer.add_node("desk", desk)
    outer.add_edge(START, "desk")
    return outer.compile(checkpointer=saver)


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("stored", [True, False])
async def test_a_receiver_in_a_nested_desk_acts_when_the_transfer_is_stored(stored: bool, way: str, config: Any) -> None:
    """Whatever durability the outer run has, the new owner is stored before its model is called; without a saver it just runs."""
    saver = SlowSaver()
    seen: list[set[Any]] = []

    def receive(_: Any) -> str:
        seen.append(saver.owners())
        return "done"

    alice = Agent(name="alice", description="A", model=ScriptedChatModel([call("transfer_to_bob", reason="r")]), handoffs=["bob"])
    bob = Agent(name="bob", description="B", model=ScriptedChatModel([receive]))
    inner = create_handoff_graph([alice, bob], default_active_agent="alice").compile()
    out = await run(outside(inner, saver if stored else None), say("hi"), config, way)
    assert out["messages"][-1].text == "done"
    assert ["bob" in owners for owners in seen] == [stored]
