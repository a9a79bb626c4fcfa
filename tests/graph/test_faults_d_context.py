"""What crosses a handoff (faults of group D)."""

from __future__ import annotations

import operator
from decimal import Decimal
from typing import Annotated, Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt import InjectedState
from langgraph.types import Command

from langgraph_handoff import Agent, Handoff, HandoffPackage, HandoffState, create_handoff_graph, decide, privileged
from langgraph_handoff.testing import ScriptedChatModel, assert_package, call, history_faults
from tests.conftest import Desk, model_of, run, say


class State(HandoffState, total=False):
    order_id: str
    facts: Annotated[list[str], operator.add]


@tool
def note(order: str, call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
    """Note an order."""
    return Command(
        update={"order_id": order, "facts": [f"order={order}"], "messages": [ToolMessage("noted", tool_call_id=call_id)]}
    )


@tool
def peek(state: Annotated[dict[str, Any], InjectedState]) -> str:
    """Read what is known."""
    return f"{state.get('order_id')} {state.get('facts')}"


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("same_turn", [True, False])
async def test_d1_facts_that_a_tool_wrote_cross_the_handoff_once(config: Any, way: str, same_turn: bool) -> None:
    """D1: state that a tool wrote before or beside a handoff reaches the receiver's tools exactly once."""
    move = call("transfer_to_bob", reason="r")
    turns: list[Any] = [[call("note", order="A-77"), move]] if same_turn else [call("note", order="A-77"), move]
    graph = create_handoff_graph(
        [
            Agent(name="alice", description="A", model=ScriptedChatModel(turns, agent="alice"), tools=[note], handoffs=["bob"]),
            Agent(name="bob", description="B", model=ScriptedChatModel([call("peek"), "done"], agent="bob"), tools=[peek]),
        ],
        default_active_agent="alice",
        state_schema=State,
    ).compile(checkpointer=InMemorySaver())
    out = await run(graph, say("hi"), config, way)
    assert next(m.text for m in out["messages"] if m.name == "peek") == "A-77 ['order=A-77']"


@pytest.mark.parametrize("first", ["write", "handoff"])
def test_d1_facts_that_an_approved_write_noted_cross_the_handoff_once(config: Any, first: str) -> None:
    """D1: state that a privileged write notes beside a handoff reaches the receiver exactly once."""
    calls = [call("note", order="A-77"), call("transfer_to_bob", reason="r")]
    alice = ScriptedChatModel([calls if first == "write" else calls[::-1]], agent="alice")
    bob = ScriptedChatModel([call("peek"), "done"], agent="bob")
    graph = create_handoff_graph(
        [
            Agent(name="alice", description="A", model=alice, tools=[privileged(note)], handoffs=["bob"]),
            Agent(name="bob", description="B", model=bob, tools=[peek]),
        ],
        default_active_agent="alice",
        state_schema=State,
    ).compile(checkpointer=InMemorySaver())
    graph.invoke(say("hi"), config)
    out = decide(graph, config, "approve", by="ana")
    assert next(m.text for m in out["messages"] if m.name == "peek") == "A-77 ['order=A-77']"


def test_d2_a_list_with_an_adding_reducer_does_not_double(config: Any) -> None:
    """D2: after several handoffs and turns a list that nobody wrote holds what the user gave, once."""
    alice = ScriptedChatModel(
        [call("transfer_to_bob", reason="r"), call("transfer_to_bob", reason="r", known_facts={"b": 2})], agent="alice"
    )
    bob = ScriptedChatModel([call("transfer_to_alice", reason="r", known_facts={"a": 1}), "done", "again"], agent="bob")
    graph = create_handoff_graph(
        [
            Agent(name="alice", description="A", model=alice, handoffs=["bob"]),
            Agent(name="bob", description="B", model=bob, handoffs=["alice"]),
        ],
        default_active_agent="alice",
        state_schema=State,
    ).compile(checkpointer=InMemorySaver())
    graph.invoke({**say("hi"), "facts": ["start"]}, config)
    assert graph.invoke(say("more"), config)["facts"] == ["start"]


PACKAGE: dict[str, Any] = {
    "reason": "the-reason",
    "goal": "the-goal",
    "summary": "the-summary",
    "success_criteria": ["the-criterion"],
    "known_facts": {"order": "the-fact", "n": 3},
    "constraints": ["the-constraint"],
    "completed_actions": ["the-action"],
    "open_questions": ["the-question"],
    "artifacts": {"file": "the-artifact"},
    "evidence": [{"source": "the-source", "note": "the-note"}],
    "user_summary": "the-user-summary",
}


def test_d4_the_receiver_s_first_prompt_shows_the_whole_package(desk: Desk, config: Any) -> None:
    """D4: everything that the sender put into its package stands in the receiver's first prompt."""
    graph = desk(alice={"turns": [call("transfer_to_bob", **PACKAGE)], "handoffs": ["bob"]}, bob={"turns": ["hello"]})
    graph.invoke(say("hi"), config)
    prompt = "\n".join(m.text for m in model_of(graph, "bob").prompts[0])
    for word in (
        "reason",
        "goal",
        "summary",
        "criterion",
        "fact",
        "constraint",
        "action",
        "question",
        "artifact",
        "source",
        "note",
    ):
        assert f"the-{word}" in prompt
    assert_package(graph, config, from_agent="alice", to_agent="bob", hop=1, known_facts={"order": "the-fact"}, user_request="hi")


@pytest.mark.parametrize(
    "wrong",
    [
        {"known_facts": "x"},
        {"reason": 5},
        {"constraints": "one string"},
        {"nobody": 1},
        {"from_agent": "mallory"},
        {"hop": 99},
        {"requested_action": "destroy"},
        {"completed_actions": 7},
        {"evidence": [{"no": "source"}]},
        {"known_facts": {"x": "y" * 300_000}},
    ],
)
@pytest.mark.parametrize("way", ["sync", "async"])
async def test_d4_a_bad_package_is_an_error_result_and_moves_nothing(desk: Desk, config: Any, wrong: Any, way: str) -> None:
    """D4: a package with wrong types, unknown fields, a forged envelope or too many bytes leaves owner and budget as they were."""
    graph = desk(
        alice={"turns": [call("transfer_to_bob", **{"reason": "r", **wrong}), "I answer myself"], "handoffs": ["bob"]},
        bob={"turns": []},
    )
    out = await run(graph, say("hi"), config, way)
    failed = next(m for m in out["messages"] if m.type == "tool")
    assert failed.status == "error"
    assert (out["active_agent"], out["ownership"]["hop"], out["ownership"]["turn_hops"]) == ("alice", 0, 0)
    assert out.get("handoff") is None
    assert history_faults(out["messages"]) == []
    assert out["messages"][-1].text == "I answer myself"


class Refund(HandoffPackage):
    """What a refund desk needs."""

    order_id: str
    amount: Decimal


@pytest.mark.parametrize("how", ["agent", "edge"])
@pytest.mark.parametrize("wrong", [{}, {"order_id": "A"}, {"order_id": "A", "amount": "much"}, {"order_id": 7, "amount": "1"}])
def test_d4_a_typed_brief_is_held_to_its_type(desk: Desk, config: Any, how: str, wrong: Any) -> None:
    """D4: a destination's own package class is asked for and checked; what is wrong is named, and the right one arrives typed."""
    edge = Handoff(to="bob", package=Refund) if how == "edge" else "bob"
    graph = desk(
        alice={
            "turns": [call("transfer_to_bob", **wrong), call("transfer_to_bob", order_id="A", amount="2.50")],
            "handoffs": [edge],
        },
        bob={"turns": ["hello"], "package": Refund if how == "agent" else HandoffPackage},
    )
    out = graph.invoke(say("hi"), config)
    failed = next(m for m in out["messages"] if m.type == "tool")
    assert failed.status == "error"
    assert "order_id" in failed.text or "amount" in failed.text
    assert isinstance(out["handoff"], Refund)
    assert (out["handoff"].amount, out["ownership"]["turn_hops"]) == (Decimal("2.50"), 1)
    assert "2.50" in model_of(graph, "bob").prompts[0][0].text


def test_d5_the_receiver_gets_the_user_s_question(desk: Desk, config: Any) -> None:
    """D5: after a silent handoff the user's words are the receiver's, over two hops too."""
    graph = desk(
        alice={"turns": [call("transfer_to_bob")], "handoffs": ["bob"]},
        bob={"turns": [call("transfer_to_carol")], "handoffs": ["carol"]},
        carol={"turns": ["hello"]},
    )
    graph.invoke(say("where is my parcel?"), config)
    assert [m.text for m in model_of(graph, "carol").prompts[0] if m.type == "human"][-1] == "where is my parcel?"


def test_d8_what_was_found_in_an_earlier_turn_reaches_the_receiver_by_package(desk: Desk, config: Any) -> None:
    """D8: a fact found in turn 1 and packed in turn 2 is in the receiver's prompt, and in that of the agent after it."""

    def lookup() -> str:
        """Look up."""
        return "order A-5"

    graph = desk(
        alice={
            "turns": [call("lookup"), "found", call("transfer_to_bob", known_facts={"order": "A-5"})],
            "tools": [lookup],
            "handoffs": ["bob"],
        },
        bob={"turns": [call("transfer_to_carol", reason="r")], "handoffs": ["carol"]},
        carol={"turns": ["hello"]},
    )
    graph.invoke(say("hi"), config)
    graph.invoke(say("move on"), config)
    for agent in ("bob", "carol"):
        assert "order: A-5" in model_of(graph, agent).prompts[0][0].text


def test_d9_a_state_of_the_user_s_own_prints_no_warning(config: Any, caplog: pytest.LogCaptureFixture) -> None:
    """D9: an extra field of the state arrives, and nothing is logged about unknown channels."""
    bob = ScriptedChatModel([call("peek"), "done"], agent="bob")
    alice = ScriptedChatModel([call("transfer_to_bob", reason="r")], agent="alice")
    graph = create_handoff_graph(
        [
            Agent(name="alice", description="A", model=alice, handoffs=["bob"]),
            Agent(name="bob", description="B", model=bob, tools=[peek]),
        ],
        default_active_agent="alice",
        state_schema=State,
    ).compile(checkpointer=InMemorySaver())
    out = graph.invoke({**say("hi"), "order_id": "A-1"}, config)
    assert next(m.text for m in out["messages"] if m.name == "peek") == "A-1 []"
    assert caplog.records == []


def test_constraints_stay_over_hops_and_secrets_do_not_cross(desk: Desk, config: Any) -> None:
    """A constraint holds for every later agent without being repeated; a card number and a key never cross the border."""
    secrets = {"card": "4111 1111 1111 1111", "key": "sk-proj-abcdefghijklmnop1234"}
    graph = desk(
        alice={"turns": [call("transfer_to_bob", constraints=["no phone calls"], known_facts=secrets)], "handoffs": ["bob"]},
        bob={"turns": [call("transfer_to_carol", reason="r")], "handoffs": ["carol"]},
        carol={"turns": ["hello"]},
    )
    out = graph.invoke(say("hi"), config)
    assert "no phone calls" in model_of(graph, "carol").prompts[0][0].text
    shown = str(model_of(graph, "bob").prompts) + str(model_of(graph, "carol").prompts) + str(out["handoff"]) + str(out["case"])
    assert shown.count("[redacted]") >= 2
    assert not [secret for secret in secrets.values() if secret in shown]
