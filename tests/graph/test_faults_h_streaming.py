"""Streaming, screens and drawing (faults of group H, with L2 and M1)."""

from __future__ import annotations

import operator
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command

from langgraph_handoff import (
    Agent,
    Handoff,
    HandoffPackage,
    HandoffState,
    Human,
    create_handoff_graph,
    create_handoff_tool,
    decide,
    privileged,
)
from langgraph_handoff.errors import ScriptError
from langgraph_handoff.testing import ScriptedChatModel, assert_only_owner_called_tools, call
from tests.conftest import Desk, say


def look(what: str) -> str:
    """Look something up."""
    return f"saw {what}"


def travelling(desk: Desk, **more: Any) -> Any:
    return desk(
        alice={"turns": [[call("look", what="x"), call("transfer_to_bob", reason="r")]], "tools": [look], "handoffs": ["bob"]},
        bob={"turns": ["hello dear user", *["again"] * 8], **more},
    )


async def streamed(graph: Any, given: Any, config: Any, way: str, **options: Any) -> list[Any]:
    if way == "async":
        return [each async for each in graph.astream(given, config, **options)]
    return list(graph.stream(given, config, **options))


@pytest.mark.parametrize("way", ["sync", "async"])
async def test_h1_an_update_event_holds_only_new_messages(desk: Desk, config: Any, way: str) -> None:
    """H1: over several turns each message appears in exactly one update event."""
    graph = travelling(desk)
    seen: list[str] = []
    for turn in range(4):
        for update in await streamed(graph, say(f"turn {turn}"), config, way, stream_mode="updates"):
            for node in update.values():
                seen += [message.id for message in (node or {}).get("messages", [])]
    assert len(seen) == len(set(seen)) == 7


@pytest.mark.parametrize("way", ["sync", "async"])
async def test_every_hop_is_on_the_custom_stream(desk: Desk, config: Any, way: str) -> None:
    """Offers, acceptances, declines and returns appear on the custom stream, in order, with who and where."""
    graph = desk(
        alice={
            "turns": [call("transfer_to_bob", reason="r"), call("transfer_to_carol", reason="r")],
            "handoffs": ["bob", Handoff(to="carol", on_reply="return")],
        },
        bob={"turns": [call("decline_handoff", reason="not mine")]},
        carol={"turns": ["hello"]},
    )
    told = [each["type"] for each in await streamed(graph, say("hi"), config, way, stream_mode="custom")]
    assert told == [
        "handoff.offered",
        "handoff.accepted",
        "handoff.declined",
        "handoff.offered",
        "handoff.accepted",
        "handoff.returned",
    ]


@pytest.mark.parametrize("way", ["sync", "async"])
async def test_words_stream_with_their_agent_s_name(desk: Desk, config: Any, way: str) -> None:
    """The owner's tokens stream one by one from its own node, and the stored message carries its name."""
    graph = travelling(desk)
    parts = await streamed(graph, say("hi"), config, way, stream_mode="messages")
    words = [(chunk.text, meta["langgraph_node"]) for chunk, meta in parts if isinstance(chunk, AIMessageChunk) and chunk.text]
    assert [word for word, _ in words] == ["hello", " dear", " user"]
    assert {node for _, node in words} == {"bob"}
    assert graph.get_state(config).values["messages"][-1].name == "bob"


@pytest.mark.parametrize("way", ["sync", "async"])
async def test_h3_the_outer_stream_shows_one_interrupt_in_the_common_shape(desk: Desk, config: Any, way: str) -> None:
    """H3: a pause is one interrupt event with `action_requests` and `review_configs`, and typing does not lose it."""
    graph = travelling(desk)
    graph = desk(alice={"turns": [call("look", what="x"), "done"], "tools": [privileged(look)]})
    for given in (say("hi"), say("are you there?")):
        events = await streamed(graph, given, config, way, stream_mode="updates")
        pauses = [each["__interrupt__"] for each in events if "__interrupt__" in each]
        assert len(pauses) == 1
        assert set(pauses[0][0].value) >= {"action_requests", "review_configs", "handoff"}
    assert decide(graph, config, "approve", by="ana")["messages"][-1].text == "done"


def edges(graph: Any) -> set[tuple[str, str]]:
    return {(edge.source, edge.target) for edge in graph.get_graph(xray=True).edges}


def test_h4_the_drawing_has_every_real_edge_and_no_false_one(desk: Desk) -> None:
    """H4: the drawing follows what agents hold: no tools edge without tools, no approval without a gate, no write from an agent."""
    graph = desk(
        Human(description="People"),
        alice={"tools": [look], "handoffs": ["bob", Handoff(to="carol", approval=True)]},
        bob={"tools": [privileged(call_me)]},
        carol={},
    )
    drawn = edges(graph)
    assert {("alice", "tools"), ("alice", "approval"), ("bob", "approval"), ("approval", "write"), ("transfer", "human")} <= drawn
    assert (
        not {("bob", "tools"), ("carol", "tools"), ("carol", "approval"), ("bob", "write"), ("tools", "bob"), ("write", "alice")}
        & drawn
    )
    plain = edges(desk(alice={}, bob={}))
    assert {name for edge in plain for name in edge} == {"__start__", "intake", "alice", "bob", "transfer", "__end__"}


def call_me(number: str) -> str:
    """Call a number."""
    return number


def test_h4_our_graph_can_be_drawn_inside_another(desk: Desk) -> None:
    """H4: a graph with ours as a node draws with xray, and our nodes are in it."""
    outer = StateGraph(HandoffState)
    outer.add_node("desk", desk(alice={"tools": [look]}, bob={}))
    outer.add_edge(START, "desk")
    assert "desk:alice" in outer.compile().get_graph(xray=True).nodes


def test_every_taken_step_is_an_edge_of_the_drawing(desk: Desk, config: Any) -> None:
    """What a run does follows the drawing: each pair of consecutive steps is one of its edges."""
    graph = desk(
        alice={
            "turns": [[call("look", what="x"), call("call_me", number="1"), call("transfer_to_bob", reason="r")]],
            "tools": [look, privileged(call_me)],
            "handoffs": ["bob"],
        },
        bob={"turns": ["hello"]},
    )
    steps: list[str] = ["__start__"]
    for given in (say("hi"), None):
        if given is None:
            given = Command(resume={"decisions": [{"type": "approve"}]})
        steps += [name for each in graph.stream(given, config, stream_mode="updates") for name in each if name != "__interrupt__"]
    drawn = edges(graph)
    assert steps == ["__start__", "intake", "alice", "approval", "tools", "write", "transfer", "bob"]
    assert [pair for pair in zip(steps, steps[1:], strict=False) if pair not in drawn] == []


def test_l2_the_hook_of_a_handoff_runs_once_for_each(desk: Desk, config: Any) -> None:
    """L2: `on_handoff` runs once for each accepted handoff, with its package, and not for a refused one."""
    left: list[HandoffPackage] = []
    graph = desk(
        alice={"turns": [call("transfer_to_bob", reason=5), call("transfer_to_bob", reason="r")], "handoffs": ["bob"]},
        bob={"turns": ["hello"]},
        options={"on_handoff": left.append},
    )
    graph.invoke(say("hi"), config)
    assert [(each.from_agent, each.to_agent) for each in left] == [("alice", "bob")]


def test_l2_the_last_step_of_an_agent_s_own_graph_runs_when_it_hands_off(config: Any) -> None:
    """L2: an agent that is a graph of its own finishes its own steps when it leaves by handoff."""
    ended: list[str] = []
    move = create_handoff_tool(agent_name="bob")
    model = ScriptedChatModel([call("transfer_to_bob", reason="r"), "bye"], agent="alice").bind_tools([move])
    inner = StateGraph(MessagesState)
    inner.add_node("think", lambda state: {"messages": [model.invoke(state["messages"])]})
    inner.add_node("tools", ToolNode([move]))
    inner.add_node("after", lambda state: ended.append("after") or {})
    inner.add_edge(START, "think")
    inner.add_conditional_edges("think", tools_condition, {"tools": "tools", "__end__": "after"})
    inner.add_edge("tools", "after")
    alice = Agent(name="alice", description="A", graph=inner.compile(), handoffs=["bob"])
    bob = Agent(name="bob", description="B", model=ScriptedChatModel(["hello"], agent="bob"))
    graph = create_handoff_graph([alice, bob], default_active_agent="alice").compile(checkpointer=InMemorySaver())
    out = graph.invoke(say("hi"), config)
    assert (ended, out["active_agent"], out["messages"][-1].text) == (["after"], "bob", "hello")


async def test_m1_the_scripted_model_drives_a_handoff_test(desk: Desk, config: Any) -> None:
    """M1: with tools bound, sync, async and streaming, the scripted model works, and it fails by name when misused."""
    graph = travelling(desk)
    await graph.ainvoke(say("hi"), config)
    assert_only_owner_called_tools(graph, config)
    model = ScriptedChatModel(["one", "two"], agent="billing")
    model.invoke("hi")
    with pytest.raises(ScriptError, match=r"billing.*1 of 2 turns were not used"):
        model.assert_finished()
    model.invoke("hi")
    with pytest.raises(ScriptError, match=r"billing.*was not expected"):
        model.invoke("hi")
    with pytest.raises(ScriptError, match=r"billing.*refused by a provider"):
        dangling: list[BaseMessage] = [
            *model.prompts[0],
            AIMessageChunk("", tool_call_chunks=[{"name": "x", "args": "{}", "id": "1", "index": 0, "type": "tool_call_chunk"}]),
        ]
        ScriptedChatModel(["x"], agent="billing").invoke(dangling)


def test_parallel_state_of_the_user_merges(config: Any) -> None:
    """A user's own reducer channel is merged once for each parallel read that writes it."""

    class State(HandoffState, total=False):
        notes: Annotated[list[str], operator.add]

    @tool
    def note(text: str, call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Note."""
        return Command(update={"notes": [text], "messages": [ToolMessage("ok", tool_call_id=call_id)]})

    alice = ScriptedChatModel([[call("note", text="a"), call("note", text="b")], "done"], agent="alice")
    graph = create_handoff_graph(
        [Agent(name="alice", description="A", model=alice, tools=[note])], default_active_agent="alice", state_schema=State
    ).compile(checkpointer=InMemorySaver())
    assert sorted(graph.invoke(say("hi"), config)["notes"]) == ["a", "b"]
