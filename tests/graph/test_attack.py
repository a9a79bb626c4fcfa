"""What an attacker tried: each of these went wrong once."""

from __future__ import annotations

import copy
import os
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command
from pydantic import BaseModel, Field, field_validator

from langgraph_handoff import Agent, HandoffPackage, adecide, connect, create_handoff_graph, decide, pending, privileged
from langgraph_handoff.beside import beside
from langgraph_handoff.errors import CatalogError, ThreadBusyError
from langgraph_handoff.ledger import MemoryLedger
from langgraph_handoff.testing import ScriptedChatModel, call
from tests.conftest import Desk, model_of, run, say

ran: list[Any] = []
ways = pytest.mark.parametrize("way", ["sync", "async"])


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ran.clear()


def pay(order: str, amount: float = 1.0) -> str:
    """Pay an order."""
    ran.append((order, amount))
    return "paid"


def count(number: int) -> str:
    """Count."""
    ran.append(number)
    return "counted"


def paying(*turns: Any, **options: Any) -> Any:
    """Return a builder of a desk with one agent who may pay."""
    alice = Agent(name="alice", description="a", model=ScriptedChatModel(turns, agent="alice"), tools=[privileged(pay)])
    return create_handoff_graph([alice], default_active_agent="alice", **options)


# Stores that only look older than each other.


@ways
async def test_a_copy_that_writes_does_not_make_its_original_look_rolled_back(config: Any, way: str) -> None:
    """The thread that asked goes on after a copy of it has carried the write out, and does not write again."""
    saver = InMemorySaver()
    graph = paying(call("pay", order="A"), "one", "two").compile(checkpointer=saver)
    await run(graph, say("hi"), config, way)
    thread = config["configurable"]["thread_id"]
    saver.storage["copy"] = copy.deepcopy(saver.storage[thread])
    for kept in (saver.writes, saver.blobs):
        kept.update({("copy", *key[1:]): value for key, value in list(kept.items()) if key[0] == thread})  # type: ignore[attr-defined]
    decide(graph, {"configurable": {"thread_id": "copy"}}, "approve", by="ana")
    out = await run(graph, say("and?"), config, way)
    assert (out["messages"][-1].text, ran) == ("two", [("A", 1.0)])


@ways
async def test_tenants_of_one_ledger_may_name_their_threads_alike(config: Any, way: str) -> None:
    """A write of one tenant neither makes another tenant's thread look rolled back nor shows in its list of what waits."""
    ledger = MemoryLedger()
    ours, theirs = (
        paying(call("pay", order="A"), "done", tenant=name).compile(checkpointer=InMemorySaver(), ledger=ledger)
        for name in ("ours", "theirs")
    )
    await run(theirs, say("hi"), config, way)
    ledger.move(ledger.records()[0], "approve", decision="approve", approver="ana", decided_at=1.0)
    assert len(pending(theirs)) == 1
    assert pending(ours) == []
    await run(theirs, None, config, way)
    assert "__interrupt__" in await run(ours, say("hi"), config, way)


# One ledger for one thread, wherever a graph stands.


@pytest.mark.parametrize("given", ["a ledger", "storage"])
def test_a_graph_inside_an_agent_uses_the_outer_graphs_ledger(config: Any, given: str) -> None:
    """An inner desk without a ledger of its own writes into the one that its outer desk was compiled with."""
    inner = paying(call("pay", order="A"), "done").compile()
    outer = create_handoff_graph([Agent(name="desk", description="d", graph=inner)], default_active_agent="desk")
    storage = connect(":memory:")
    graph = (
        outer.compile(storage=storage)
        if given == "storage"
        else outer.compile(checkpointer=InMemorySaver(), ledger=storage.ledger)
    )
    graph.invoke(say("hi"), config)
    assert [each.tool for each in pending(graph)] == ["pay"]
    assert len(storage.ledger.records()) == 1


def test_a_saver_in_memory_brings_the_ledger_that_it_was_connected_with(config: Any) -> None:
    """Graphs compiled with storage and with its checkpointer alone share one ledger."""
    storage = connect(":memory:")
    paying(call("pay", order="A")).compile(storage=storage).invoke(say("hi"), config)
    other = paying().compile(checkpointer=storage.checkpointer)
    assert len(pending(other)) == 1


def test_a_link_to_a_case_file_leads_to_the_same_ledger(tmp_path: Path) -> None:
    """Whoever opens cases through a symbolic link finds the ledger beside the file itself."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link.db").symlink_to(tmp_path / "real" / "cases.db")
    with connect(str(tmp_path / "link.db")) as storage:
        near = beside(storage.checkpointer)
        assert near is not None
        assert near.ledger is not None
        assert storage.ledger.location == near.ledger.location == os.path.realpath(tmp_path / "real" / "cases.ledger.db")


# What a run is configured with, wherever it is said.


@ways
async def test_a_desk_called_by_a_node_without_a_config_runs_in_that_nodes_run(config: Any, way: str) -> None:
    """A node may call a desk with nothing but its input, as the host allows: it asks and is answered through the outer graph."""
    inner = paying(call("pay", order="A"), "done").compile()

    def desk(state: Any) -> Any:
        return {"messages": inner.invoke({"messages": state["messages"]})["messages"]}

    async def adesk(state: Any) -> Any:
        return {"messages": (await inner.ainvoke({"messages": state["messages"]}))["messages"]}

    builder = StateGraph(MessagesState)
    builder.add_node("desk", adesk if way == "async" else desk)
    builder.add_edge(START, "desk")
    graph: Any = builder.compile(checkpointer=InMemorySaver())
    assert "__interrupt__" in await run(graph, say("hi"), config, way)
    answered = adecide(graph, config, "approve", by="ana") if way == "async" else None
    out = await answered if answered else decide(graph, config, "approve", by="ana")
    assert (out["messages"][-1].text, ran) == ("done", [("A", 1.0)])


@ways
async def test_a_thread_that_is_bound_to_the_graph_counts(config: Any, way: str) -> None:
    """A graph with its thread bound by `with_config` holds the lease and takes answers, like one that is told at each call."""
    graph: Any = paying(call("pay", order="A"), "done").compile(checkpointer=InMemorySaver()).with_config(config)
    first = graph.stream(say("hi"))
    next(first)
    with pytest.raises(ThreadBusyError):
        await run(graph, say("me too"), None, way)
    list(first)
    out = await run(graph, Command(resume={"decisions": [{"type": "approve"}]}), None, way)
    assert (out["messages"][-1].text, ran) == ("done", [("A", 1.0)])


# What a model or a person may send.


class _Amount(BaseModel):
    amount: str

    @field_validator("amount")
    @classmethod
    def _is_a_number(cls, given: str) -> str:
        Decimal(given)  # raises InvalidOperation, which is no ValueError
        return given


class _AmountPackage(HandoffPackage, _Amount):
    pass


def _deep() -> Any:
    value: Any = 1
    for _ in range(300):
        value = [value]
    return value


@ways
@pytest.mark.parametrize("name", ["transfer_to_bob", "look", "pay", "nothing"])
@pytest.mark.parametrize("value", [10**30, _deep()], ids=["a number of more than 64 bits", "300 levels"])
async def test_arguments_that_no_checkpoint_takes_are_an_error_result(
    desk: Desk, config: Any, value: Any, name: str, way: str
) -> None:
    """The model is told and the run goes on."""

    def look(known_facts: Any) -> str:
        """Look."""
        return "seen"

    bob = {"turns": []}
    graph = desk(
        alice={"turns": [call(name, known_facts={"k": value}), "done"], "tools": [look, privileged(pay)], "handoffs": ["bob"]},
        bob=bob,
    )
    out = await run(graph, say("hi"), config, way)
    assert [m.status for m in out["messages"] if m.type == "tool"] == ["error"]
    assert out["messages"][-1].text == "done"


def test_a_validator_that_raises_anything_is_an_error_result(desk: Desk, config: Any) -> None:
    """An exception from a privileged tool's or a package's own validator tells the model that its arguments were wrong."""
    credit = StructuredTool.from_function(func=lambda amount: amount, name="credit", description="Credit.", args_schema=_Amount)
    graph = desk(
        alice={
            "turns": [call("credit", amount="ten"), call("transfer_to_bob", amount="ten"), "done"],
            "tools": [privileged(credit)],
            "handoffs": ["bob"],
        },
        bob={"turns": [], "package": _AmountPackage},
    )
    out = graph.invoke(say("hi"), config)
    assert ["InvalidOperation" in m.text for m in out["messages"] if m.type == "tool"] == [True, True]
    assert out["messages"][-1].text == "done"


@ways
async def test_an_edit_that_no_checkpoint_takes_is_not_a_decision(desk: Desk, config: Any, way: str) -> None:
    """A number of more than 64 bits in an edit is asked again, and the case is not stuck."""
    graph = desk(alice={"turns": [call("count", number=1), "done"], "tools": [privileged(count)]})
    await run(graph, say("hi"), config, way)
    edit = {"type": "edit", "edited_action": {"name": "count", "args": {"number": str(10**30)}}}
    out = await run(graph, Command(resume={"decisions": [edit]}), config, way)
    assert "64 bits" in out["__interrupt__"][0].value["handoff"]["note"]
    decide(graph, config, "approve", by="ana")
    assert ran == [1]


def test_a_privileged_tool_has_no_default_that_changes() -> None:
    """A default that is made anew for each call can never be approved, so the graph is not built; the operation's id may be one."""

    class Pay(BaseModel):
        order: str
        ref: str = Field(default_factory=lambda: uuid.uuid4().hex)
        tags: list[str] = Field(default_factory=list)

    made = StructuredTool.from_function(func=lambda order, ref, tags: ref, name="pay", description="Pay.", args_schema=Pay)
    with pytest.raises(CatalogError, match="'ref' of 'pay' is never twice the same"):
        privileged(made)
    privileged(made, idempotency_key="ref")


# The log, the package, the view.


def test_a_decision_is_told_of_the_call_that_it_was_about(desk: Desk, config: Any) -> None:
    """A second call with the arguments to which the first was edited has a story of its own: who decided about it, and how."""
    both = [call("pay", order="A", amount=1.0), call("pay", order="A", amount=2.0)]
    graph = desk(alice={"turns": [both, "done"], "tools": [privileged(pay, identity=("order",))]})
    graph.invoke(say("hi"), config)
    decide(graph, config, "edit", by="ana", args={"order": "A", "amount": 2.0})
    out = decide(graph, config, "reject", by="ben")
    told = [(e["detail"]["by"], e["detail"]["decision"]) for e in out["events"] if e["kind"] == "decided"]
    assert told == [("ana", "edit"), ("ben", "reject")]
    assert ran == [("A", 2.0)]


@pytest.mark.parametrize("who", ["the owner", "whom a follow-up waits for"])
def test_a_rename_loses_neither_package_nor_follow_ups(desk: Desk, config: Any, who: str) -> None:
    """An agent found by its alias still reads what it was given, and follow-ups from before the rename are opened."""
    saver = InMemorySaver()
    asked = [call("transfer_to_bob", goal="the first thing"), call("transfer_to_carol", goal="the second thing")]
    before = desk(alice={"turns": [asked], "handoffs": ["bob", "carol"]}, bob={"turns": ["hello"]}, carol={"turns": []})
    before.checkpointer = saver
    before.invoke(say("hi"), config)
    bob, carol = ("robert", "carol") if who == "the owner" else ("bob", "caroline")
    after = desk(
        options={"aliases": {"bob": "robert"} if bob == "robert" else {"carol": "caroline"}},
        **{
            "alice": {"turns": [], "handoffs": [bob, carol]},
            bob: {"turns": [call("close_case", message="bye")]},
            carol: {"turns": ["and now the second thing"]},
        },
    )
    after.checkpointer = saver
    out = after.invoke(say("go on"), config)
    assert any("the first thing" in str(m.content) for m in model_of(after, bob).prompts[0])
    assert (out["active_agent"], out["handoff"].to_agent, out["messages"][-1].text) == (carol, carol, "and now the second thing")


def test_what_another_agents_tool_wrote_is_not_shown(desk: Desk, config: Any) -> None:
    """A message that a tool of the sender put into the talk beside the handoff is no part of the receiver's visit."""

    @tool
    def fetch(call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Fetch."""
        return Command(update={"messages": [ToolMessage("fetched", tool_call_id=call_id), HumanMessage("for alice alone")]})

    turn = [call("fetch"), call("transfer_to_bob", goal="g")]
    graph = desk(alice={"turns": [turn], "tools": [fetch], "handoffs": ["bob"]}, bob={"turns": ["hello"]})
    graph.invoke(say("hi"), config)
    assert not any("for alice alone" in str(m.content) for m in model_of(graph, "bob").prompts[0])


def test_a_follow_up_that_is_asked_for_again_waits_once(desk: Desk, config: Any) -> None:
    """The same second destination in many turns is one follow-up, so neither state nor view grows with it."""
    asked = [call("transfer_to_bob", known_facts={"a": 1}), call("transfer_to_carol", goal="the same")]
    graph = desk(
        alice={"turns": ScriptedChatModel([asked], loop=True, agent="alice"), "handoffs": ["bob", "carol"]},
        bob={
            "turns": ScriptedChatModel([call("transfer_to_alice", reason="back")], loop=True, agent="bob"),
            "handoffs": ["alice"],
        },
        carol={"turns": []},
        options={"max_handoffs": 2},
    )
    for turn in range(6):
        out = graph.invoke(say(f"turn {turn}"), config)
    assert len(model_of(graph, "alice").prompts) > 1
    assert [item["to"] for item in out["ownership"]["queue"]] == ["carol"]
