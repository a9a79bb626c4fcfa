"""Who owns the case (faults of group C)."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, Send

from langgraph_handoff import (
    Agent,
    Handoff,
    HandoffState,
    add_handoffs,
    connect,
    create_handoff_graph,
    create_handoff_tool,
    decide,
    hops,
    privileged,
)
from langgraph_handoff.graph import HandoffGraph
from langgraph_handoff.storage import Storage
from langgraph_handoff.testing import ScriptedChatModel, call
from tests.conftest import Desk, model_of, run, say


@pytest.mark.parametrize("way", ["sync", "async"])
async def test_c1_a_graph_inside_a_larger_graph_keeps_its_owner(way: str) -> None:
    """C1: as a node of the user's graph, with the state shared, the owner of turn 1 owns turn 2."""
    bob = ScriptedChatModel(["hello", "still me"], agent="bob")
    alice = ScriptedChatModel([call("transfer_to_bob", reason="r")], agent="alice")
    inner = create_handoff_graph(
        [Agent(name="alice", description="A", model=alice, handoffs=["bob"]), Agent(name="bob", description="B", model=bob)],
        default_active_agent="alice",
    ).compile()
    outer = StateGraph(HandoffState)
    outer.add_node("desk", inner)
    outer.add_edge(START, "desk")
    graph = outer.compile(checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "1"}}
    await run(graph, say("hi"), config, way)  # type: ignore[arg-type]
    out = await run(graph, say("and now?"), config, way)  # type: ignore[arg-type]
    assert out["active_agent"] == "bob"
    assert out["messages"][-1].text == "still me"
    assert len({m.id for m in out["messages"]}) == len(out["messages"]) == 6


@pytest.mark.parametrize("way", ["sync", "async"])
async def test_c1_a_graph_with_a_memory_of_its_own_keeps_its_owner(way: str) -> None:
    """C1: inside a graph that shares the messages only, `checkpointer=True` keeps the owner, and no message stands twice."""
    bob = ScriptedChatModel(["hello", "still me"], agent="bob")
    alice = ScriptedChatModel([call("transfer_to_bob", reason="r")], agent="alice")
    inner = create_handoff_graph(
        [Agent(name="alice", description="A", model=alice, handoffs=["bob"]), Agent(name="bob", description="B", model=bob)],
        default_active_agent="alice",
    ).compile(checkpointer=True)
    outer = StateGraph(MessagesState)
    outer.add_node("desk", inner)
    outer.add_edge(START, "desk")
    graph = outer.compile(checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "1"}}
    await run(graph, say("hi"), config, way)  # type: ignore[arg-type]
    out = await run(graph, say("and now?"), config, way)  # type: ignore[arg-type]
    assert [m.text for m in out["messages"] if m.type != "tool"] == ["hi", "", "hello", "and now?", "still me"]


def _goto(form: str) -> Any:
    return {"name": "bob", "send": Send("bob", {}), "list": [Send("bob", {})]}[form]


@pytest.mark.parametrize("form", ["name", "send", "list"])
def test_c2_a_tool_s_update_is_kept_whatever_its_goto(config: Any, form: str) -> None:
    """C2: what a tool writes to state is kept for every form of `goto`, and no tool moves the owner by itself."""

    class State(HandoffState, total=False):
        order_id: str

    @tool
    def sly(call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Write state and try to jump."""
        update = {"order_id": "A-77", "active_agent": "bob", "messages": [ToolMessage("noted", tool_call_id=call_id)]}
        return Command(update=update, goto=_goto(form))

    alice = ScriptedChatModel([call("sly"), "done"], agent="alice")
    graph = create_handoff_graph(
        [
            Agent(name="alice", description="A", model=alice, tools=[sly], handoffs=["bob"]),
            Agent(name="bob", description="B", model=ScriptedChatModel([], agent="bob")),
        ],
        default_active_agent="alice",
        state_schema=State,
    ).compile(checkpointer=InMemorySaver())
    out = graph.invoke(say("hi"), config)
    assert (out["order_id"], out["active_agent"], out["messages"][-1].text) == ("A-77", "alice", "done")


def test_c2_a_handoff_tool_among_the_tools_is_an_edge(desk: Desk, config: Any) -> None:
    """A handoff tool given among the tools, as langgraph-swarm's users write it, is a declared handoff."""
    graph = desk(
        alice={"turns": [call("transfer_to_bob", reason="r")], "tools": [create_handoff_tool(agent_name="bob")]},
        bob={"turns": ["hello"]},
    )
    assert graph.invoke(say("hi"), config)["active_agent"] == "bob"


@pytest.mark.parametrize("turns", [1, 4])
def test_c4_the_owner_keeps_the_case_over_turns(desk: Desk, storage: Storage, config: Any, turns: int) -> None:
    """C4: later turns of the user go to the owner, not to the entry agent."""
    graph = desk(
        storage=storage,
        alice={"turns": [call("transfer_to_bob", reason="r")], "handoffs": ["bob"]},
        bob={"turns": ["hello", *["again"] * turns]},
    )
    graph.invoke(say("hi"), config)
    for _ in range(turns):
        assert graph.invoke(say("more"), config)["messages"][-1].name == "bob"


@pytest.mark.parametrize("how", ["edge", "agent"])
def test_c5_a_lent_case_comes_back_without_the_borrower_s_model(desk: Desk, config: Any, how: str) -> None:
    """C5: with a return rule the lender owns the case after the borrower's answer, and no model is asked for that."""
    edge = Handoff(to="bob", on_reply="return") if how == "edge" else "bob"
    graph = desk(
        alice={"turns": [call("transfer_to_bob", reason="r"), "alice here"], "handoffs": [edge]},
        bob={"turns": ["hello"], "return_to": "alice" if how == "agent" else None},
    )
    out = graph.invoke(say("hi"), config)
    assert (out["active_agent"], out["messages"][-1].text) == ("alice", "hello")
    assert len(model_of(graph, "alice").prompts) == len(model_of(graph, "bob").prompts) == 1
    assert graph.invoke(say("more"), config)["messages"][-1].text == "alice here"


def test_c7_an_approved_call_runs_at_its_agent_in_a_new_process(tmp_path: Any, config: Any) -> None:
    """C7: after a restart an approval runs the asking agent's tool, once."""
    ran: list[str] = []

    def pay(order: str) -> str:
        """Pay an order."""
        ran.append(order)
        return "paid"

    def build(storage: Storage, *bob: Any) -> Any:
        alice = ScriptedChatModel([call("transfer_to_bob", reason="r")], agent="alice")
        return create_handoff_graph(
            [
                Agent(name="alice", description="A", model=alice, handoffs=["bob"]),
                Agent(name="bob", description="B", model=ScriptedChatModel(bob, agent="bob"), tools=[privileged(pay)]),
            ],
            default_active_agent="alice",
        ).compile(storage=storage)

    file = str(tmp_path / "cases.db")
    with connect(file) as storage:
        build(storage, call("pay", order="A-1")).invoke(say("hi"), config)
    with connect(file) as storage:
        graph = build(storage, "done")
        out = decide(graph, config, "approve", by="ana")
        assert (ran, out["active_agent"], out["messages"][-1].name) == (["A-1"], "bob", "bob")
        assert hops(graph, config) == ["alice", "bob", "human", "bob"]


def test_c9_the_owner_is_a_state_key_not_the_last_message(desk: Desk, config: Any) -> None:
    """C9: after a handoff and a tool result the next turn is the owner's."""

    def look() -> str:
        """Look."""
        return "seen"

    graph = desk(
        alice={"turns": [call("transfer_to_bob", reason="r")], "handoffs": ["bob"]},
        bob={"turns": [call("look"), "hello", "again"], "tools": [look]},
    )
    graph.invoke(say("hi"), config)
    assert graph.invoke(say("more"), config)["messages"][-1].name == "bob"


async def test_j4_a_router_chooses_the_entry_and_the_owner_keeps_later_turns(desk: Desk, config: Any) -> None:
    """J4: the first owner is the router's choice, every later turn is the owner's."""
    from langgraph_handoff import FirstMatch, RuleRouter, UserRouter

    router = FirstMatch([UserRouter(), RuleRouter([(r"invoice|refund", "bob")])])
    for text, owner in (("my invoice", "bob"), ("hello", "alice"), ("let me talk to carol please", "carol")):
        graph = desk(
            alice={"turns": ["a", "a"]}, bob={"turns": ["b", "b"]}, carol={"turns": ["c", "c"]}, options={"router": router}
        )
        assert (await graph.ainvoke(say(text), config))["active_agent"] == owner
        assert graph.invoke(say("my invoice"), config)["active_agent"] == owner


def test_our_nodes_work_in_a_graph_of_the_user(config: Any) -> None:
    """`add_handoffs` puts the desk behind the user's own nodes, with the user's own state."""

    class State(HandoffState, total=False):
        seen: int

    builder = HandoffGraph(State)
    builder.add_node("count", lambda state: {"seen": state.get("seen", 0) + 1})
    builder.add_edge(START, "count")
    builder.add_edge("count", "intake")
    bob = ScriptedChatModel(["hello", "again"], agent="bob")
    add_handoffs(builder, [Agent(name="bob", description="B", model=bob)], default_active_agent="bob")
    graph = builder.compile(checkpointer=InMemorySaver())
    graph.invoke(say("hi"), config)
    out = graph.invoke(say("more"), config)
    assert (out["seen"], out["messages"][-1].text) == (2, "again")
