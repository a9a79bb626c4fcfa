"""Reducers and channels: laws that a replay relies on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.errors import EmptyChannelError, InvalidUpdateError
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from langgraph_handoff import HandoffPackage, connect
from langgraph_handoff.errors import PackageError, UnknownPackageTypeError, UnsupportedSchemaVersionError
from langgraph_handoff.state import (
    REMOVED_BY,
    SNAPSHOT_FREQUENCY,
    HandoffChannel,
    append_events,
    append_messages,
    merge_case,
    unanswered,
    user_turn,
)
from langgraph_handoff.testing import call, history_faults
from tests.conftest import Desk, run, say

ids = st.sampled_from(["a", "b", "c", "d"])
texts = st.text(max_size=3)
calls = st.lists(st.sampled_from(["x", "y", "z"]), unique=True, max_size=3)
messages: st.SearchStrategy[BaseMessage] = st.one_of(
    st.builds(lambda i, t: HumanMessage(t, id=i), ids, texts),
    st.builds(lambda t: HumanMessage(t), texts),
    st.builds(lambda i, t, c: AIMessage(t, id=i, tool_calls=[call("f", call_id=each) for each in c]), ids, texts, calls),
    st.builds(lambda c, t: ToolMessage(t, tool_call_id=c, id=f"{c}:result"), st.sampled_from(["x", "y", "z"]), texts),
    st.builds(lambda i: RemoveMessage(id=i), st.one_of(ids, st.just(REMOVE_ALL_MESSAGES))),
    st.builds(lambda i, c: RemoveMessage(id=i, additional_kwargs={REMOVED_BY: c}), ids, st.sampled_from(["x", "y"])),
)
writes = st.lists(st.one_of(messages, st.lists(messages, max_size=3)), max_size=6)


def shown(talk: list[BaseMessage]) -> list[tuple[Any, ...]]:
    return [(m.id, m.type, m.content, getattr(m, "tool_call_id", None)) for m in talk]


@settings(max_examples=300, deadline=None)
@given(writes, writes)
def test_messages_do_not_depend_on_how_writes_are_batched(first: list[Any], second: list[Any]) -> None:
    """Folding two batches one after the other gives what folding both at once gives."""
    assert shown(append_messages(append_messages([], first), second)) == shown(append_messages([], first + second))


@settings(max_examples=300, deadline=None)
@given(writes)
def test_messages_have_one_entry_per_id(given_: list[Any]) -> None:
    """However messages are written, no id stands twice and no message is without an id."""
    talk = append_messages([], given_)
    found = [message.id for message in talk]
    assert len(found) == len(set(found))
    assert all(found)


@settings(max_examples=200, deadline=None)
@given(writes)
def test_a_stored_message_written_again_changes_nothing(given_: list[Any]) -> None:
    """Writing back what is stored, as a replay does, leaves it as it is."""
    talk = append_messages([], given_)
    assert shown(append_messages(talk, [list(talk)])) == shown(talk)


@pytest.mark.parametrize("order", [["x", "y", "z"], ["z", "y", "x"], ["y", "z", "x"]])
def test_results_stand_behind_their_message_in_the_order_of_its_calls(order: list[str]) -> None:
    """Results that arrive in any order, and behind a user's message, stand right behind their message in call order."""
    asking = AIMessage("", id="a", tool_calls=[call("f", call_id=each) for each in ("x", "y", "z")])
    results: list[Any] = [ToolMessage(each, tool_call_id=each, id=each) for each in order]
    talk = append_messages([], [asking, HumanMessage("hurry", id="h"), *results])
    assert [m.id for m in talk] == ["a", "x", "y", "z", "h"]
    assert history_faults(talk) == []


@settings(max_examples=200, deadline=None)
@given(st.permutations(["x", "y", "z", "talk", "other"]), st.integers(0, 5))
def test_results_find_their_place_from_anywhere(order: list[str], cut: int) -> None:
    """In whatever order and batches results and words arrive, the talk is one that providers take, in call order."""
    asking = AIMessage("", id="a", tool_calls=[call("f", call_id=each) for each in ("x", "y", "z")])
    came: list[Any] = [
        ToolMessage(each, tool_call_id=each, id=each) if each in "xyz" else HumanMessage(each, id=each) for each in order
    ]
    talk = append_messages(append_messages([], [asking, *came[:cut]]), [came[cut:]])
    assert [m.id for m in talk[:4]] == ["a", "x", "y", "z"]
    assert [m.id for m in talk[4:]] == [each for each in order if each not in "xyz"]
    assert history_faults(talk) == []


@pytest.mark.parametrize("target", [REMOVE_ALL_MESSAGES, "a", "x", "h", "unknown"])
@pytest.mark.parametrize("by", ["y", None])
def test_a_tool_s_removal_spares_the_message_that_called_it(target: str, by: str | None) -> None:
    """What a tool removes never takes its own call away, nor that call's siblings; what a user removes is removed."""
    asking = AIMessage("", id="a", tool_calls=[call("f", call_id="x"), call("f", call_id="y")])
    talk: list[Any] = [HumanMessage("hi", id="h"), asking, ToolMessage("x", tool_call_id="x", id="x")]
    removal = RemoveMessage(id=target, additional_kwargs={REMOVED_BY: by} if by else {})
    left = {m.id for m in append_messages(talk, [[removal]])}
    gone = {"h", "a", "x"} if target == REMOVE_ALL_MESSAGES else {target}
    assert left == {"h", "a", "x"} - (gone - {"a", "x"} if by else gone)


def test_messages_without_an_id_get_the_same_one_again() -> None:
    """An id that was missing depends on place and content: a replay gives it again, and equal words said twice stand twice."""
    given_: list[Any] = ["same", "same", AIMessage("same"), ToolMessage("same", tool_call_id="x")]
    once = append_messages([], given_)
    assert (
        shown(once) == shown(append_messages([], given_)) == shown(append_messages(append_messages([], given_[:2]), given_[2:]))
    )
    assert len({m.id for m in once}) == 4


@pytest.mark.parametrize("written", ["hi", ("user", "hi"), {"role": "user", "content": "hi"}, [("user", "hi")]])
def test_whatever_the_host_takes_as_a_message_is_taken(written: Any) -> None:
    """Texts, pairs and dictionaries become messages with an id that a replay finds again."""
    (message,) = append_messages([], [written])
    assert (message.type, message.content) == ("human", "hi")
    assert message.id == append_messages([], [written])[0].id


events = st.lists(st.fixed_dictionaries({"id": ids, "kind": st.just("k"), "agent": ids, "at": st.just(0.0)}), max_size=5)


@given(events, events)
def test_events_are_a_set_in_order(first: list[Any], second: list[Any]) -> None:
    """The log takes each event once, in whatever batches it is written, and writing it again changes nothing."""
    at_once = append_events([], [first, second])
    assert append_events(append_events([], [first]), [second]) == at_once
    assert append_events(at_once, [second, first]) == at_once


values = st.recursive(st.integers() | st.text(max_size=2), lambda inner: st.lists(inner, max_size=3), max_leaves=4)
cases = st.dictionaries(
    st.sampled_from(["facts", "constraints", "note"]),
    st.one_of(st.dictionaries(ids, values, max_size=3), st.lists(texts, max_size=3), texts),
    max_size=3,
)


@given(cases, cases)
def test_the_case_file_takes_a_write_once(case: Any, write: Any) -> None:
    """Merging the same write twice is merging it once."""
    once = merge_case(case, write)
    assert merge_case(once, write) == once


@given(st.lists(st.lists(texts, max_size=4), max_size=4))
def test_constraints_only_grow(rounds: list[list[str]]) -> None:
    """No write takes a constraint away or doubles one."""
    case: dict[str, Any] = {}
    for added in rounds:
        before = list(case.get("constraints", []))
        case = merge_case(case, {"constraints": added})
        assert case["constraints"][: len(before)] == before
        assert len(case["constraints"]) == len(set(case["constraints"]))


class Ticket(HandoffPackage):
    """A package with a field of its own."""

    number: int


def test_the_package_channel_validates_stores_json_and_gives_a_package_back() -> None:
    """The channel takes a package or its stored form and gives back the same class, also through storage."""
    channel = HandoffChannel((Ticket,), "handoff")
    with pytest.raises(EmptyChannelError):
        channel.get()
    ticket = Ticket(number=7, reason="r")
    assert channel.update([ticket])
    stored = channel.checkpoint()
    assert isinstance(stored, dict)
    assert channel.from_checkpoint(stored).get() == ticket
    assert channel.copy().get() == ticket
    with pytest.raises(PackageError, match="number"):
        channel.update([{**stored, "number": "x"}])
    assert channel.get() == ticket
    with pytest.raises(InvalidUpdateError):
        channel.update([stored, stored])


def test_the_package_channel_names_what_it_cannot_read() -> None:
    """An unknown class or major version is an error with its name, never an unvalidated object."""
    stored = Ticket(number=7).dump()
    with pytest.raises(UnknownPackageTypeError, match="Ticket"):
        HandoffChannel((), "handoff").from_checkpoint(stored)
    with pytest.raises(UnsupportedSchemaVersionError, match=r"9\.0"):
        HandoffChannel((Ticket,), "handoff").from_checkpoint({**stored, "schema_version": "9.0"})


def test_open_calls_and_turns_are_found() -> None:
    """Helpers find the calls without a result and the message that names the turn."""
    asking = AIMessage("", id="a", tool_calls=[call("f", call_id="x"), call("f", call_id="y")])
    talk: list[BaseMessage] = [HumanMessage("hi", id="h"), asking, ToolMessage("r", tool_call_id="x", id="x")]
    assert unanswered(talk) == (asking, ["y"])
    assert unanswered([]) == (None, [])
    assert user_turn(talk) == "h"


@pytest.mark.parametrize("way", ["sync", "async"])
async def test_a_cold_read_equals_the_live_state(desk: Desk, tmp_path: Path, config: Any, way: str) -> None:
    """A fresh graph reads from the file what the live one has, after every turn around a whole copy of the talk."""
    file = str(tmp_path / "cases.db")
    copies, counted, checked = 0, 0, 0

    def look() -> str:
        """Look."""
        return "seen"

    with connect(file) as storage:
        turns = [each for number in range(40) for each in (call("look", call_id=f"c{number}"), f"words {number}")]
        graph = desk(storage=storage, alice={"turns": turns, "tools": [look]})
        for turn in range(40):
            out = await run(graph, say(str(turn)), config, way)
            counters = (graph.get_state(config).metadata or {}).get("counters_since_delta_snapshot", {})
            since = counters.get("messages", (0, 0))[0]
            copies += since < counted
            counted = since
            if turn and not 12 < since < SNAPSHOT_FREQUENCY - 12:
                checked += 1
                with connect(file) as other:
                    cold = desk(storage=other, alice={}).get_state(config).values
                assert shown(cold["messages"]) == shown(out["messages"])
                assert cold["events"] == out["events"]
    assert copies >= 1
    assert checked >= 4
    assert len(out["messages"]) == 160


PROGRAM = """
import sys, warnings
warnings.simplefilter("error")
from langgraph_handoff import Agent, HandoffPackage, connect, create_handoff_graph
from langgraph_handoff.testing import ScriptedChatModel, call
class Ticket(HandoffPackage):
    number: int
def build(storage, script):
    alice = Agent(name="alice", description="A", model=ScriptedChatModel(script[:1]), handoffs=["bob"])
    bob = Agent(name="bob", description="B", model=ScriptedChatModel(script[1:]), package=Ticket)
    return create_handoff_graph([alice, bob], default_active_agent="alice").compile(storage=storage)
config = {"configurable": {"thread_id": "1"}}
with connect(sys.argv[1]) as storage:
    if sys.argv[2] == "write":
        build(storage, [call("transfer_to_bob", number=7), "hello"]).invoke({"messages": "hi"}, config)
    else:
        out = build(storage, [call("unused"), "hello again"]).invoke({"messages": "more"}, config)
        print(type(out["handoff"]).__name__, out["handoff"].number, [m.text for m in out["messages"]], len(out["events"]))
"""


@pytest.mark.parametrize(
    ("delta_write", "delta_read"), [("true", "true"), ("false", "false"), ("true", "false"), ("false", "true")]
)
@pytest.mark.parametrize("strict", ["true", "false"])
def test_every_setting_reads_what_every_setting_wrote(tmp_path: Path, delta_write: str, delta_read: str, strict: str) -> None:
    """With and without delta channels and strict msgpack a thread is read whole and typed, without any warning."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)

    def run(what: str, delta: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "HANDOFF_DELTA_CHANNEL": delta, "LANGGRAPH_STRICT_MSGPACK": strict}
        command = [sys.executable, str(program), str(tmp_path / "cases.db"), what]
        return subprocess.run(command, capture_output=True, text=True, env=env, timeout=60, check=False)

    wrote = run("write", delta_write)
    assert (wrote.returncode, wrote.stderr) == (0, "")
    read = run("read", delta_read)
    assert (read.returncode, read.stderr) == (0, "")
    assert read.stdout.strip() == "Ticket 7 ['hi', '', 'bob has the case now.', 'hello', 'more', 'hello again'] 3"
