"""A graph that keeps a case memory: requests, verdicts, traces and lessons are found by those whom they concern."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.store.memory import InMemoryStore

from langgraph_handoff import CaseMemory, Handoff, connect, create_handoff_graph, hops
from langgraph_handoff.agents import Agent
from langgraph_handoff.errors import CatalogError, MemoryStoreError
from langgraph_handoff.testing import ScriptedChatModel, assert_package, call, history_faults
from tests.conftest import Desk, model_of, run, say

MEMORY = {"memory": True}


def credits_of(account: str) -> str:
    """Look up the credits of an account."""
    return f"{account}: $400 goodwill for the CSV export, applied on May 5"


def brief_of(graph: Any, agent: str, prompt: int) -> str:
    """Return what an agent was told in its brief."""
    return "\n".join(str(m.text) for m in model_of(graph, agent).prompts[prompt] if m.name == "handoff")


ASK = call("transfer_to_rex", requested_action="approve", reason="Refund $1,200 to Acme", constraints=["over the limit of $500"])
BLOCK = call("give_verdict", verdict="block", comments="Check for existing credits first: resubmit for $800.")


def story(desk: Desk, storage: Any) -> Any:
    """Ari looks, asks for $1,200, is blocked, asks again and is approved; Rex looks behind the brief before he answers."""
    again = call("transfer_to_rex", requested_action="approve", reason="Refund $800 to Acme")
    return desk(
        ari={"turns": [call("credits_of", account="Acme"), ASK, again, "done"], "tools": [credits_of], "handoffs": ["rex"]},
        rex={"turns": [call("recall_case", query="Acme credit"), BLOCK, call("give_verdict", verdict="approve")]},
        storage=storage,
        options=MEMORY,
    )


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("kind", ["memory", "file"])
async def test_a_verdict_goes_back_to_who_asked(desk: Desk, config: Any, tmp_path: Path, kind: str, way: str) -> None:
    """A request to approve is answered by a verdict, the case goes back with it, and the sender speaks to the user."""
    with connect(str(tmp_path / "cases.db") if kind == "file" else ":memory:") as storage:
        graph = story(desk, storage)
        out = await run(graph, say("Acme wants its money back"), config, way)
        assert out["messages"][-1].text == "done"
        assert hops(graph, config) == ["ari", "rex", "ari", "rex", "ari"]
        assert history_faults(out["messages"]) == []
        (recalled,) = [m.text for m in out["messages"] if m.name == "recall_case"]
        assert "$400 goodwill" in recalled
        assert "by ari" in recalled
        asked = brief_of(graph, "rex", 0)
        assert "Requests to you that have no verdict yet:" in asked
        assert "ari asks you to approve: " in asked
        blocked = brief_of(graph, "ari", 2)
        assert "Verdicts on your requests:\n- rex: block. Check for existing credits first: resubmit for $800." in blocked
        memory = CaseMemory(storage.store)
        case_id = config["configurable"]["thread_id"]
        found = memory.recall(case_id=case_id, entry_types=["feedback"])
        assert [each.verdict for each in found] == ["approve", "block"]
        assert memory.receive_handoffs(agent_id="rex") == []


@pytest.mark.parametrize("way", ["sync", "async"])
async def test_a_lesson_is_read_in_the_next_case(desk: Desk, tmp_path: Path, way: str) -> None:
    """What a verdict taught stands in the brief of whom it concerns, in another case and another process."""
    first, second = ({"configurable": {"thread_id": name}} for name in ("case-1", "case-2"))
    with connect(str(tmp_path / "cases.db")) as storage:
        await run(story(desk, storage), say("Acme wants its money back"), first, way)
        CaseMemory(storage.store).reflect(case_id="case-1")
    with connect(str(tmp_path / "cases.db")) as storage:
        graph = desk(ari={"turns": ["noted"]}, storage=storage, options=MEMORY)
        await run(graph, say("Beta wants its money back"), second, way)
        assert "Lessons from earlier work:\n- Check for existing credits first" in brief_of(graph, "ari", 0)


def test_what_is_taken_up_needs_no_verdict(desk: Desk, config: Any) -> None:
    """A case that is handed on to be continued stands in the memory with its package, and in nobody's inbox."""
    with connect(":memory:") as storage:
        ask = call("transfer_to_bob", reason="An invoice", known_facts={"invoice": "A-1"})
        graph = desk(alice={"turns": [ask], "handoffs": ["bob"]}, bob={"turns": ["hello"]}, storage=storage, options=MEMORY)
        graph.invoke(say("hi"), config)
        memory = CaseMemory(storage.store)
        (asked,) = memory.recall(case_id=config["configurable"]["thread_id"], entry_types=["handoff"])
        assert (asked.agent, asked.to_agent, asked.content["known_facts"]) == ("alice", "bob", {"invoice": "A-1"})
        assert memory.receive_handoffs(agent_id="bob") == []
        assert "Verdicts" not in brief_of(graph, "bob", 0)


def test_a_decline_is_remembered_with_its_reason(desk: Desk, config: Any) -> None:
    """Who declines a case asks for a change, and the reason stands in the memory."""
    with connect(":memory:") as storage:
        graph = desk(
            alice={"turns": [call("transfer_to_bob", reason="r"), "I keep it"], "handoffs": ["bob"]},
            bob={"turns": [call("decline_handoff", reason="not an invoice")]},
            storage=storage,
            options=MEMORY,
        )
        graph.invoke(say("hi"), config)
        said = CaseMemory(storage.store).recall(case_id=config["configurable"]["thread_id"], entry_types=["feedback"])
        assert [(each.verdict, each.text) for each in said] == [
            ("request_changes", "bob declined: not an invoice"),
            ("acknowledge", ""),
        ]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"verdict": "maybe"}, "`verdict` is one of"),
        ({"verdict": "block"}, "Say why"),
        ({"verdict": "request_changes", "comments": " "}, "Say why"),
        ({}, "`verdict` is one of"),
    ],
)
def test_a_verdict_that_says_nothing_is_the_model_s_mistake(desk: Desk, config: Any, given: Any, told: str) -> None:
    """A verdict that is none, or that objects without a reason, is an error result, and the receiver tries again."""
    graph = desk(
        alice={"turns": [call("transfer_to_bob", requested_action="review", reason="r"), "thanks"], "handoffs": ["bob"]},
        bob={"turns": [call("give_verdict", **given), call("give_verdict", verdict="acknowledge")]},
    )
    out = graph.invoke(say("hi"), config)
    assert told in next(m.text for m in out["messages"] if m.type == "tool" and m.status == "error")
    assert out["messages"][-1].text == "thanks"
    assert_package(graph, config, from_agent="bob", to_agent="alice")


def test_a_verdict_can_be_asked_for_without_a_memory(desk: Desk, config: Any) -> None:
    """Review and approve go back to the sender with the verdict, also in a graph that keeps no memory."""
    graph = desk(
        alice={"turns": [call("transfer_to_bob", requested_action="review", reason="r"), "thanks"], "handoffs": ["bob"]},
        bob={"turns": [call("give_verdict", verdict="request_changes", comments="shorter")]},
    )
    graph.invoke(say("hi"), config)
    assert "request_changes" in brief_of(graph, "alice", 1)
    assert "shorter" in brief_of(graph, "alice", 1)


def test_who_was_not_asked_has_no_verdict_to_give(desk: Desk, config: Any) -> None:
    """An owner that nobody asked for a verdict does not hold the tool, and a call of it is refused."""
    graph = desk(alice={"turns": [call("give_verdict", verdict="approve"), "ok"]})
    out = graph.invoke(say("hi"), config)
    (refused,) = [m for m in out["messages"] if m.type == "tool"]
    assert refused.status == "error"
    assert out["messages"][-1].text == "ok"


def test_a_killed_turn_is_remembered_once(desk: Desk, config: Any) -> None:
    """A node that runs again after a crash writes the same entries again, and they stand there once."""

    class Dying(InMemoryStore):
        dead = False

        def batch(self, ops: Any) -> Any:
            out = super().batch(ops)
            if not self.dead and any("handoff" in str(getattr(op, "value", None) or "") for op in ops):
                self.dead = True
                raise KeyboardInterrupt
            return out

    graph = desk(
        alice={"turns": [call("credits_of", account="Acme"), call("transfer_to_bob", reason="r")] * 2, "tools": [credits_of],
               "handoffs": ["bob"]},
        bob={"turns": ["hello"]},
        options=MEMORY,
    )  # fmt: skip
    graph.store = store = Dying()
    with pytest.raises(KeyboardInterrupt):
        graph.invoke(say("hi"), config)
    assert graph.invoke(None, config)["messages"][-1].text == "hello"
    found = CaseMemory(store).recall(case_id=config["configurable"]["thread_id"])
    assert sorted(each.entry_type for each in found) == ["feedback", "handoff", "trace"]


def test_secrets_do_not_reach_the_memory(desk: Desk, config: Any) -> None:
    """A tool's result is redacted by the graph's own rule before it is kept."""

    def lookup(name: str) -> str:
        """Look a key up."""
        return "sk-proj-abcdefghijklmnop1234"

    with connect(":memory:") as storage:
        graph = desk(alice={"turns": [call("lookup", name="k"), "ok"], "tools": [lookup]}, storage=storage, options=MEMORY)
        graph.invoke(say("hi"), config)
        (trace,) = CaseMemory(storage.store).recall(case_id=config["configurable"]["thread_id"], entry_types=["trace"])
        assert trace.content == {"tool": "lookup", "args": {"name": "k"}, "result": "[redacted]"}


def test_a_memory_without_a_store_is_named(desk: Desk, config: Any) -> None:
    """A graph that shall remember and has no store says what to compile it with."""
    graph = desk(alice={"turns": ["hello"]}, options=MEMORY)
    with pytest.raises(MemoryStoreError, match="store="):
        graph.invoke(say("hi"), config)


def test_a_graph_that_keeps_no_memory_writes_none(desk: Desk, config: Any) -> None:
    """Without `memory=True` the store stays empty and no agent holds the tool."""
    with connect(":memory:") as storage:
        graph = desk(
            alice={"turns": [call("transfer_to_bob")], "handoffs": [Handoff(to="bob")]}, bob={"turns": ["b"]}, storage=storage
        )
        graph.invoke(say("hi"), config)
        assert CaseMemory(storage.store).cases() == []
        assert "recall_case" not in graph.catalog.tools["alice"]


def test_an_agent_with_such_a_tool_of_its_own_is_refused() -> None:
    """A tool of one's own that has the memory's name is a mistake that is named when the graph is built."""

    def recall_case(query: str) -> str:
        """Recall."""
        return query

    alice = Agent(name="alice", description="A", model=ScriptedChatModel([AIMessage("x")]), tools=[recall_case])
    with pytest.raises(CatalogError, match="recall_case"):
        create_handoff_graph([alice], default_active_agent="alice", memory=True)
