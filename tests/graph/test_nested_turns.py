"""Turns, questions, breakpoints and streams of a desk that is a node of somebody else's graph."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from langgraph_handoff import Agent, HandoffState, adecide, create_handoff_graph, decide, hops, privileged
from langgraph_handoff.errors import HandoffError, NoOpenRequestError, StaleRequestError
from langgraph_handoff.testing import ScriptedChatModel, call, history_faults
from tests.conftest import run, say

APPROVE = {"decisions": [{"type": "approve"}]}
PLACES = [
    pytest.param(MessagesState, None, id="messages"),
    pytest.param(MessagesState, True, id="messages, memory of its own"),
    pytest.param(HandoffState, None, id="whole state"),
    pytest.param(HandoffState, True, id="whole state, memory of its own"),
]
"""What the parent shares with the desk, and the checkpointer that the desk is compiled with."""
in_each_place = pytest.mark.parametrize(("schema", "memory"), PLACES)
both_ways = pytest.mark.parametrize("way", ["sync", "async"])
ran: list[Any] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ran.clear()


def refund(amount: float) -> str:
    """Refund an amount."""
    ran.append(amount)
    return f"refunded {amount}"


def credit(amount: float) -> str:
    """Credit an amount."""
    ran.append(("credit", amount))
    return f"credited {amount}"


def look(what: str) -> str:
    """Look something up."""
    ran.append(what)
    return f"saw {what}"


def desk_of(bob: list[Any], alice: Any = None, memory: Any = None, **compiled: Any) -> Any:
    """Alice hands to bob, who may refund."""
    alices = ScriptedChatModel(alice or [call("transfer_to_bob", reason="r")], agent="alice")
    agents = [
        Agent(name="alice", description="A", model=alices, tools=[look], handoffs=["bob"]),
        Agent(name="bob", description="B", model=ScriptedChatModel(bob, agent="bob"), tools=[privileged(refund)]),
    ]
    return create_handoff_graph(agents, default_active_agent="alice").compile(checkpointer=memory, **compiled)


def around(schema: Any, **nodes: Any) -> Any:
    """A plain graph with these nodes side by side; only it has a checkpointer."""
    outer = StateGraph(schema)
    for name, node in nodes.items():
        outer.add_node(name, node)
        outer.add_edge(START, name)
    return outer.compile(checkpointer=InMemorySaver())


def asked(graph: Any, config: Any) -> list[Any]:
    return [each.value for each in graph.get_state(config).interrupts]


@both_ways
@in_each_place
@pytest.mark.parametrize("answer", ["bare", "by id", "decide"])
async def test_a_question_surfaces_once_and_its_answer_resumes_inside(
    config: Any, schema: Any, memory: Any, way: str, answer: str
) -> None:
    """However it is answered, a gated write inside a parent graph is asked once at the parent, runs once, and the turn ends there."""
    graph = around(schema, desk=desk_of([call("refund", amount=40), "final"], memory=memory))
    out = await run(graph, say("hi"), config, way)
    (shown,) = out["__interrupt__"]
    assert shown.value["action_requests"][0]["args"] == {"amount": 40}
    if answer == "decide":
        out = await adecide(graph, config, "approve", by="ana") if way == "async" else decide(graph, config, "approve", by="ana")
    else:
        given = {shown.id: APPROVE} if answer == "by id" else APPROVE
        out = await run(graph, Command(resume=given), config, way)
    assert (ran, out["messages"][-1].text) == ([40], "final")
    assert history_faults(out["messages"]) == []
    assert len({m.id for m in out["messages"]}) == len(out["messages"]) == 6
    if schema is HandoffState:
        assert hops(graph, config) == ["alice", "bob", "human", "bob"]


@both_ways
@in_each_place
async def test_the_owner_is_kept_where_the_state_is_kept(config: Any, schema: Any, memory: Any, way: str) -> None:
    """With the whole state shared, or a memory of its own, later turns are the owner's; a parent that shares only messages forgets it."""
    forgets = schema is MessagesState and memory is None
    graph = around(schema, desk=desk_of(["hello", "still me"], [call("transfer_to_bob", reason="r"), "alice again"], memory))
    await run(graph, say("hi"), config, way)
    out = await run(graph, say("and now?"), config, way)
    assert out["messages"][-1].text == ("alice again" if forgets else "still me")
    assert history_faults(out["messages"]) == []


@both_ways
@in_each_place
async def test_f1_a_message_while_the_question_is_open_runs_nothing_and_is_shown(
    config: Any, schema: Any, memory: Any, way: str
) -> None:
    """F1: a message to the parent while its desk waits runs nothing: the write is asked about with the new words, and runs once."""
    moves = [call("transfer_to_bob", reason="r")] * 2
    bob = ScriptedChatModel(
        [lambda m: "done" if any(x.type == "tool" for x in m) else call("refund", amount=40)], loop=True, agent="bob"
    )
    agents = [
        Agent(name="alice", description="A", model=ScriptedChatModel(moves, agent="alice"), handoffs=["bob"]),
        Agent(name="bob", description="B", model=bob, tools=[privileged(refund)]),
    ]
    graph = around(schema, desk=create_handoff_graph(agents, default_active_agent="alice").compile(checkpointer=memory))
    await run(graph, say("hi"), config, way)
    await run(graph, say("stop, wait"), config, way)
    assert ran == []
    (shown,) = asked(graph, config)
    assert shown["handoff"]["latest_user_message"] == "stop, wait"
    out = await run(graph, Command(resume=APPROVE), config, way)
    assert (ran, out["messages"][-1].text) == ([40], "done")
    assert history_faults(out["messages"]) == []


@in_each_place
def test_f2_a_second_click_on_the_parent_approves_nothing(config: Any, schema: Any, memory: Any) -> None:
    """F2: the same bare answer right behind the next question, and an answer that names the earlier one, run nothing."""
    graph = around(schema, desk=desk_of([call("refund", amount=40), call("refund", amount=9000), "final"], memory=memory))
    graph.invoke(say("hi"), config)
    first = asked(graph, config)[0]["handoff"]["request_id"]
    graph.invoke(Command(resume=APPROVE), config)
    graph.invoke(Command(resume=APPROVE), config)
    assert "second click" in asked(graph, config)[0]["handoff"]["note"]
    with pytest.raises(StaleRequestError):
        decide(graph, config, "approve", by="ana", request_id=first)
    assert ran == [40]
    decide(graph, config, "reject", by="ana")
    with pytest.raises(NoOpenRequestError):
        decide(graph, config, "approve", by="ana", request_id=first)
    assert ran == [40]


def crowded() -> Any:
    """Two desks and a question of the parent's own, side by side."""

    def ask(_: Any) -> dict[str, Any]:
        ran.append(interrupt("how are you?"))
        return {}

    def worker(tool: Any, amount: int) -> Any:
        model = ScriptedChatModel([call(tool.__name__, amount=amount), "done"], agent="alice")
        alice = Agent(name="alice", description="A", model=model, tools=[privileged(tool)])
        return create_handoff_graph([alice], default_active_agent="alice").compile()

    return around(MessagesState, own=ask, first=worker(refund, 1), second=worker(credit, 2))


@both_ways
async def test_f9_f10_of_several_open_questions_one_is_answered_by_its_id(config: Any, way: str) -> None:
    """F9, F10: beside another desk and the parent's own question, one answer is not taken for all, and `decide` answers the one it names."""
    graph = crowded()
    await run(graph, say("hi"), config, way)
    ids = {
        each["action_requests"][0]["name"]: each["handoff"]["request_id"]
        for each in asked(graph, config)
        if each != "how are you?"
    }
    assert len(ids) == 2
    with pytest.raises(RuntimeError, match="interrupt"):
        await run(graph, Command(resume=APPROVE), config, way)
    with pytest.raises(StaleRequestError, match="several are open, so name one with `request_id`"):
        decide(graph, config, "approve", by="ana")
    assert ran == []
    out = decide(graph, config, "edit", by="ana", request_id=ids["credit"], args={"amount": 22})
    assert ran == [("credit", 22)]
    decide(graph, config, "reject", by="ana", request_id=ids["refund"])
    assert asked(graph, config) == ["how are you?"]
    out = await run(graph, Command(resume="fine"), config, way)
    assert ran == [("credit", 22), "fine"]
    assert history_faults(out["messages"]) == []


@both_ways
@in_each_place
@pytest.mark.parametrize("stop", ["interrupt_before", "interrupt_after"])
@pytest.mark.parametrize("node", ["intake", "alice", "tools", "transfer", "approval", "write", "bob"])
async def test_f18_a_breakpoint_inside_goes_on_behind_itself(
    config: Any, schema: Any, memory: Any, way: str, stop: str, node: str
) -> None:
    """F18: a static breakpoint at any node inside a parent graph goes on where it stopped, and nothing runs twice."""
    alice = [call("look", what="x"), [call("look", what="y"), call("transfer_to_bob", reason="r")]]
    graph = around(schema, desk=desk_of([call("refund", amount=40), "final"], alice, memory, **{stop: [node]}))
    out = await run(graph, say("hi"), config, way)
    for _ in range(12):
        snapshot = graph.get_state(config)
        if not snapshot.next:
            break
        out = await run(graph, Command(resume=APPROVE) if snapshot.interrupts else None, config, way)
    assert (ran, out["messages"][-1].text) == (["x", "y", 40], "final")
    assert history_faults(out["messages"]) == []


@both_ways
async def test_a_stream_of_the_parent_shows_the_desk_inside(config: Any, way: str) -> None:
    """With `subgraphs=True` hops, updates and words arrive under the desk's namespace, each once, and the question once at the top."""
    graph = around(MessagesState, desk=desk_of(["look here", call("refund", amount=40)]))
    options: Any = {"stream_mode": ["updates", "custom", "messages"], "subgraphs": True}
    if way == "async":
        parts = [each async for each in graph.astream(say("hi"), config, **options)]
    else:
        parts = list(graph.stream(say("hi"), config, **options))
    inside = [(mode, part) for place, mode, part in parts if place]
    told = [part["type"] for mode, part in inside if mode == "custom"]
    assert told == ["handoff.offered", "handoff.accepted"]
    words = [part for mode, part in inside if mode == "messages" and part[1]["langgraph_node"] == "bob"]
    assert "".join(chunk.text for chunk, _ in words) == "look here"
    updated = [m.id for mode, part in inside if mode == "updates" for change in part.values() for m in change.get("messages", ())]
    assert len(updated) == len(set(updated)) == 3
    waiting = around(MessagesState, desk=desk_of([call("refund", amount=40)]))
    parts = list(waiting.stream(say("hi"), config, **options))
    shown = [part["__interrupt__"] for place, mode, part in parts if not place and mode == "updates" and "__interrupt__" in part]
    assert [len(each) for each in shown] == [1]


@both_ways
async def test_a_desk_two_levels_down_asks_and_keeps_its_owner(config: Any, way: str) -> None:
    """Inside a graph inside a graph the question surfaces at the top, and with a memory of its own the owner is kept."""
    middle = StateGraph(MessagesState)
    middle.add_node("desk", desk_of([call("refund", amount=40), "done", "still me"], memory=True))
    middle.add_edge(START, "desk")
    graph = around(MessagesState, middle=middle.compile())
    await run(graph, say("hi"), config, way)
    assert decide(graph, config, "approve", by="ana")["messages"][-1].text == "done"
    out = await run(graph, say("and now?"), config, way)
    assert (ran, out["messages"][-1].text) == ([40], "still me")


@both_ways
async def test_a_desk_that_a_node_calls_asks_through_that_node(config: Any, way: str) -> None:
    """A node that calls the desk with its own config passes its question on and gets its answer."""
    inner = desk_of([call("refund", amount=40), "final"])

    def node(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": inner.invoke({"messages": state["messages"]}, config)["messages"]}

    async def anode(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": (await inner.ainvoke({"messages": state["messages"]}, config))["messages"]}

    graph = around(MessagesState, desk=anode if way == "async" else node)
    assert "__interrupt__" in await run(graph, say("hi"), config, way)
    out = await run(graph, Command(resume=APPROVE), config, way)
    assert (ran, out["messages"][-1].text) == ([40], "final")


@in_each_place
def test_two_answers_at_once_through_the_parent_write_once(config: Any, schema: Any, memory: Any) -> None:
    """The parent has no lease on the thread, so two runs may resume one question; the ledger lets one of them write."""
    graph = around(schema, desk=desk_of([call("refund", amount=40), "final", "final"], memory=memory))
    graph.invoke(say("hi"), config)
    start, lost = threading.Barrier(2), []

    def resume() -> None:
        start.wait(30)
        try:
            graph.invoke(Command(resume=APPROVE), config)
        except HandoffError as error:
            lost.append(error)

    runs = [threading.Thread(target=resume) for _ in range(2)]
    for each in runs:
        each.start()
    for each in runs:
        each.join(30)
    assert ran == [40]
    assert len(lost) <= 1
    assert graph.invoke(None, config)["messages"][-1].text == "final"


def test_a_decision_that_is_no_word_of_ours_is_refused(config: Any) -> None:
    """A misspelt decision is an error at its caller, and the question stays as it was."""
    graph = desk_of([call("refund", amount=40)], memory=InMemorySaver())
    graph.invoke(say("hi"), config)
    before = asked(graph, config)
    with pytest.raises(ValueError, match="one of approve, edit, reject"):
        decide(graph, config, "aprove", by="ana")  # type: ignore[arg-type]
    assert asked(graph, config) == before
