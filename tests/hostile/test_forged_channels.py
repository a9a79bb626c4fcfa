"""Garbage in the channels that only the runtime writes: named at the front door, and never the end of a thread."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send

from langgraph_handoff import HandoffState, ahops, hops, metrics
from langgraph_handoff.errors import HandoffError, PackageError, StateUpdateError
from langgraph_handoff.state import append_events, merge_case
from langgraph_handoff.storage import Storage
from tests.conftest import Desk, say

GARBAGE: dict[str, list[Any]] = {
    "events": [42, "x", ["y"], {"a": 1}, [{"id": 1}], [[]], [None], [{"id": "a", "kind": "b", "agent": 3, "at": 1.0}]],
    "ownership": [
        42,
        "x",
        ["y"],
        {"epoch": "five"},
        {"epoch": 1, "hop": "x"},
        {"epoch": -1},
        {"epoch": 2**70},
        {"epoch": True},
        {"epoch": 1, "stack": [1]},
        {"epoch": 1, "stack": [{"agent": "bob", "rule": "steal"}]},
        {"epoch": 1, "queue": [{"to": 1}]},
        {"epoch": 1, "given": [3]},
        {"epoch": 1, "given": {"from": "bob", "to": "alice", "known": 3}},
        {"epoch": 1, "turn_hops": "7"},
    ],
    "handoff": [42, "x", ["y"], {"a": 1}, {"epoch": "five"}, {"to_agent": 3}, {"known_facts": "all"}],
    "active_agent": [42, ["bob"], {"name": "bob"}],
    "case": [42, "x", ["y"], {"facts": 3}, {"constraints": "none"}, {"refused": {"a": 1}}],
    "messages": [42, [[]], [None], {"a": 1}],
}
CASES = [(channel, value) for channel, values in GARBAGE.items() for value in values]
TURNS = {"alice": {"turns": ["one", "two", "three"], "handoffs": ["bob"]}, "bob": {"turns": ["bob"]}}


@pytest.mark.parametrize(("channel", "value"), CASES)
@pytest.mark.parametrize("way", ["update_state", "command", "input", "send", "async command", "async update_state"])
async def test_garbage_is_refused_by_name_and_the_thread_goes_on(
    desk: Desk, config: Any, channel: str, value: Any, way: str
) -> None:
    """A client's garbage is refused with the channel's name before anything is stored; then the thread is as it was."""
    graph = desk(**TURNS)
    graph.invoke(say("hi"), config)
    before = graph.get_state(config).config
    with pytest.raises(HandoffError) as raised:
        if way == "update_state":
            graph.update_state(config, {channel: value})
        elif way == "async update_state":
            await graph.aupdate_state(config, {channel: value})
        elif way == "command":
            graph.invoke(Command(update={channel: value}), config)
        elif way == "async command":
            await graph.ainvoke(Command(update=[(channel, value)]), config)
        elif way == "input":
            graph.invoke({**say("yo"), channel: value}, config)
        else:
            graph.invoke(Command(goto=Send("alice", {channel: value})), config)
    assert isinstance(raised.value, StateUpdateError if channel != "handoff" else PackageError)
    assert channel in str(raised.value) or channel == "handoff"
    assert graph.get_state(config).config == before
    assert graph.invoke(say("again"), config)["messages"][-1].text == "two"
    assert hops(graph, config) == await ahops(graph, config) == ["alice"]
    assert metrics(graph, config).hops == 0


@pytest.mark.parametrize(("channel", "value"), [case for case in CASES if case[0] != "messages" and case[1] != {"epoch": 2**70}])
@pytest.mark.parametrize("way", ["update_state", "command", "input"])
def test_garbage_in_a_parent_graph_is_not_taken(
    desk: Desk, storage: Storage, config: Any, channel: str, value: Any, way: str
) -> None:
    """In a plain parent graph, which has no front door, garbage is left out and the thread takes the next turn."""
    outer = StateGraph(HandoffState)
    outer.add_node("desk", desk(**TURNS).builder.compile())
    outer.add_edge(START, "desk")
    graph = outer.compile(checkpointer=storage.checkpointer)
    graph.invoke(say("hi"), config)
    if way == "update_state":
        graph.update_state(config, {channel: value})
    elif way == "command":
        graph.invoke(Command(update={channel: value}), config)
    else:
        graph.invoke({**say("yo"), channel: value}, config)
    assert graph.invoke(say("again"), config)["messages"][-1].text in ("two", "three")
    assert hops(graph, config)[-1] == "alice"


def test_what_is_no_event_is_left_out_of_the_log() -> None:
    """The log keeps the events of a write and drops the rest of it."""
    good: Any = {"id": "1", "kind": "opened", "agent": "alice", "at": 1.0}
    assert append_events([], [[42, good, None], "x", {"id": "2"}]) == [good]


def test_a_part_of_the_case_file_keeps_its_shape() -> None:
    """Facts stay an object and constraints a list, whatever is written; keys of one's own may hold anything."""
    case = merge_case({"facts": {"a": 1}, "constraints": ["c"]}, {"facts": 42, "constraints": "none", "mine": 42})
    assert case == {"facts": {"a": 1}, "constraints": ["c"], "mine": 42}
    assert merge_case(case, 42) == case  # type: ignore[arg-type]


def test_a_client_s_goto_leaves_the_owner_in_place(desk: Desk, storage: Storage, config: Any) -> None:
    """`goto` to intake or tools on a case that has an owner leads on to the owner: the case is not opened a second time."""

    def look(what: str) -> str:
        """Look."""
        return what

    graph = desk(storage=storage, alice={"turns": ["one", "two", "three"], "tools": [look]})
    graph.invoke(say("hi"), config)
    before = graph.get_state(config).values["ownership"]
    for node in ("intake", "tools"):
        graph.invoke(Command(goto=node), config)
    after = graph.get_state(config).values
    assert after["ownership"] == before
    assert after["messages"][-1].text == "three"
