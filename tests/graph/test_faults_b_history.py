"""The message history is one that providers take (faults of group B)."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.prebuilt import InjectedState
from langgraph.types import Command

from langgraph_handoff import decide, privileged
from langgraph_handoff.storage import Storage
from langgraph_handoff.testing import call, history_faults
from tests.conftest import Desk, model_of, say


@tool(return_direct=True)
def price(item: str) -> str:
    """Look up a price."""
    return f"{item} costs 5"


def read_card(user: str) -> str:
    """Read a customer's card."""
    return f"{user}: card ending 9931 of bank 7"


@pytest.mark.parametrize("items", [["a"], ["a", "b"], ["a", "b", "c"]])
def test_b1_a_turn_that_ends_on_results_is_answered_by_them(desk: Desk, config: Any, items: list[str]) -> None:
    """B1: `return_direct` results end the turn as the answer, all of them, in a valid history."""
    graph = desk(alice={"turns": [[call("price", item=each) for each in items], "later"], "tools": [price]})
    out = graph.invoke(say("hi"), config)
    assert out["messages"][-1].type == "ai"
    assert all(f"{each} costs 5" in out["messages"][-1].text for each in items)
    assert history_faults(out["messages"]) == []
    assert graph.invoke(say("more"), config)["messages"][-1].text == "later"


@pytest.mark.parametrize("context", ["brief", "own", "full"])
def test_b2_b3_no_prompt_has_a_call_that_its_agent_cannot_make(desk: Desk, config: Any, context: str) -> None:
    """B2, B3: over several handoffs no model sees a call to a tool that it does not hold, nor what it returned."""
    graph = desk(
        alice={
            "turns": [
                call("read_card", user="u"),
                call("transfer_to_bob", reason="r"),
                call("transfer_to_bob", reason="again", known_facts={"m": 2}),
            ],
            "tools": [read_card],
            "handoffs": ["bob"],
            "context": context,
        },
        bob={
            "turns": [call("transfer_to_alice", reason="back", known_facts={"n": 1}), "hello"],
            "handoffs": ["alice"],
            "context": context,
        },
    )
    graph.invoke(say("hi"), config)
    for agent in ("alice", "bob"):
        model = model_of(graph, agent)
        for prompt, offered in zip(model.prompts, model.offered, strict=True):
            made = {c["name"] for m in prompt if isinstance(m, AIMessage) for c in m.tool_calls}
            assert made <= set(offered)
            if agent == "bob":
                assert "9931" not in "\n".join(m.text for m in prompt)
                assert "read_card" not in made


def test_b5_removed_messages_do_not_come_back(desk: Desk, config: Any) -> None:
    """B5: messages that an agent's tool replaces by a summary are gone from state and from the receiver's prompt."""

    @tool
    def summarise(call_id: Annotated[str, InjectedToolCallId], state: Annotated[dict[str, Any], InjectedState]) -> Command[Any]:
        """Replace the old talk by a summary."""
        old = [m for m in state["messages"] if isinstance(m, HumanMessage)][:-1]
        gone = [RemoveMessage(id=str(m.id)) for m in old]
        return Command(update={"messages": [*gone, HumanMessage("summary of all"), ToolMessage("ok", tool_call_id=call_id)]})

    graph = desk(
        alice={
            "turns": [*["fine"] * 5, call("summarise"), call("transfer_to_bob", reason="r")],
            "tools": [summarise],
            "handoffs": ["bob"],
        },
        bob={"turns": ["hello"], "context": "full"},
    )
    for number in range(5):
        graph.invoke(say(f"old {number}"), config)
    out = graph.invoke(say("last"), config)
    assert not [m for m in out["messages"] if m.text.startswith("old")]
    assert "old" not in "\n".join(
        m.text for m in model_of(graph, "bob").prompts[0] if m.type == "human" and "handoff_brief" not in m.text
    )
    assert history_faults(out["messages"]) == []


@pytest.mark.parametrize("beside", [True, False])
@pytest.mark.parametrize("what", ["all", "ids"])
@pytest.mark.parametrize("order", [1, -1])
def test_b5_a_tool_that_clears_the_talk_spares_its_own_turn(
    desk: Desk, storage: Storage, config: Any, beside: bool, what: str, order: int
) -> None:
    """B5: a tool may replace the whole talk by a summary; its own turn stays answerable and a handoff beside it is carried out."""

    @tool
    def compact(call_id: Annotated[str, InjectedToolCallId], state: Annotated[dict[str, Any], InjectedState]) -> Command[Any]:
        """Replace the talk by a summary."""
        ids = [REMOVE_ALL_MESSAGES] if what == "all" else [str(m.id) for m in state["messages"]]
        gone = [RemoveMessage(id=each) for each in ids]
        return Command(update={"messages": [*gone, HumanMessage("summary of all"), ToolMessage("ok", tool_call_id=call_id)]})

    move = call("transfer_to_bob", reason="r")
    graph = desk(
        storage=storage,
        alice={
            "turns": ["fine", *([[call("compact"), move][::order]] if beside else [call("compact"), move])],
            "tools": [compact],
            "handoffs": ["bob"],
        },
        bob={"turns": ["hello"], "context": "full"},
    )
    graph.invoke(say("old"), config)
    out = graph.invoke(say("older"), config)
    assert (out["active_agent"], out["messages"][-1].text) == ("bob", "hello")
    assert [m.text for m in out["messages"] if m.type == "human"] == ["summary of all"]
    assert [m.name for m in out["messages"] if m.type == "tool"] == ["compact", "transfer_to_bob"][:: order if beside else 1]
    assert history_faults(out["messages"]) == []
    assert not [m for m in model_of(graph, "bob").prompts[0] if m.text in ("old", "older", "fine")]


def test_b5_removing_everything_is_honoured(desk: Desk, config: Any) -> None:
    """B5: the host's own REMOVE_ALL mark clears the talk and keeps what is written behind it."""
    graph = desk(alice={"turns": ["fine", "fine again"]})
    graph.invoke(say("old"), config)
    out = graph.invoke({"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), HumanMessage("new")]}, config)
    assert [m.text for m in out["messages"]] == ["new", "fine again"]


def test_b7_each_fact_stands_once(desk: Desk, config: Any) -> None:
    """B7: over several hops a fact, the user's words and a constraint stand once in a prompt."""
    package = {"known_facts": {"order": "A-77-unique"}, "constraints": ["only-once-rule"]}
    graph = desk(
        alice={"turns": [call("transfer_to_bob", reason="r", **package)], "handoffs": ["bob"]},
        bob={"turns": [call("transfer_to_carol", reason="r", **package)], "handoffs": ["carol"]},
        carol={"turns": ["hello"]},
    )
    graph.invoke(say("my-unique-words"), config)
    prompt = "\n".join(m.text for m in model_of(graph, "carol").prompts[0])
    assert prompt.count("A-77-unique") == 1
    assert prompt.count("only-once-rule") == 1
    assert prompt.count("my-unique-words") == 1
    assert model_of(graph, "carol").prompts[0][-1].text == "my-unique-words"


def test_b8_thinking_does_not_cross_a_handoff(desk: Desk, config: Any) -> None:
    """B8: a reasoning block of the sender is not in the receiver's prompt, nor in the sender's without its call."""
    thought = AIMessage(
        [{"type": "reasoning", "reasoning": "secret thought"}, {"type": "text", "text": "moving"}],
        tool_calls=[call("transfer_to_bob", call_id="c1", reason="r")],
    )
    graph = desk(
        alice={"turns": [thought, "alice again"], "handoffs": ["bob"]},
        bob={"turns": ["hello", call("transfer_to_alice", known_facts={"n": 1})], "handoffs": ["alice"], "context": "full"},
    )
    out = graph.invoke(say("hi"), config)
    assert "secret thought" not in str(model_of(graph, "bob").prompts[0])
    assert out["messages"][-1].text == "hello"
    assert graph.invoke(say("more"), config)["messages"][-1].text == "alice again"
    assert "secret thought" not in str(model_of(graph, "alice").prompts[1])


@pytest.mark.parametrize("decision", ["approve", "reject", "edit"])
def test_b10_one_result_per_call_after_a_decision(desk: Desk, config: Any, decision: str) -> None:
    """B10: whatever the person decides, the call has exactly one result."""
    graph = desk(
        alice={"turns": [[call("read_card", user="u"), call("send", to="x")], "done"], "tools": [read_card, privileged(_send)]}
    )
    graph.invoke(say("hi"), config)
    out = decide(graph, config, decision, by="ana", args={"to": "y"} if decision == "edit" else None)
    assert history_faults(out["messages"]) == []
    assert out["messages"][-1].text == "done"


@tool("send")
def _send(to: str) -> str:
    """Send a mail."""
    return f"sent to {to}"


@pytest.mark.parametrize("decisions", [("approve", "reject"), ("reject", "approve"), ("reject", "reject"), ("edit", "approve")])
def test_b10_one_result_per_call_whatever_is_decided_about_each(desk: Desk, config: Any, decisions: tuple[str, ...]) -> None:
    """B10: two gated calls beside a read and a handoff have one result each, in call order, whatever is decided."""
    calls = [call("send", to="a"), call("read_card", user="u"), call("transfer_to_bob", reason="r"), call("send", to="b")]
    graph = desk(
        alice={"turns": [calls], "tools": [read_card, privileged(_send)], "handoffs": ["bob"]},
        bob={"turns": ["hello"]},
    )
    graph.invoke(say("hi"), config)
    for decision in decisions:
        out = decide(graph, config, decision, by="ana", args={"to": "x"} if decision == "edit" else None)
    assert [m.name for m in out["messages"] if m.type == "tool"] == [each["name"] for each in calls]
    assert out["active_agent"] == "bob"
    assert history_faults(out["messages"]) == []


def test_a_message_of_the_user_does_not_come_between_call_and_result(desk: Desk, config: Any) -> None:
    """A user's message while a call is open stands behind the call's result, in state and in every prompt."""
    graph = desk(alice={"turns": [call("send", to="x"), "done"], "tools": [privileged(_send)]})
    graph.invoke(say("hi"), config)
    graph.invoke(say("hurry up"), config)
    out = decide(graph, config, "approve", by="ana")
    assert [m.type for m in out["messages"]] == ["human", "ai", "tool", "human", "ai"]
    assert history_faults(out["messages"]) == []


def test_a_tool_that_answers_for_its_sibling_is_heard_for_itself_only(desk: Desk, config: Any) -> None:
    """A tool that writes results for other calls gives one result, its own."""

    @tool
    def greedy(call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Answer for everybody."""
        return Command(update={"messages": [ToolMessage("mine", tool_call_id=call_id), ToolMessage("yours", tool_call_id="c2")]})

    graph = desk(
        alice={
            "turns": [[call("greedy", call_id="c1"), call("read_card", call_id="c2", user="u")], "done"],
            "tools": [greedy, read_card],
        }
    )
    out = graph.invoke(say("hi"), config)
    assert [m.text for m in out["messages"] if m.type == "tool"] == ["mine", "u: card ending 9931 of bank 7"]
    assert history_faults(out["messages"]) == []


def test_a_tool_that_fails_gives_an_error_result(desk: Desk, config: Any) -> None:
    """An exception in a read is the call's error result, and the turn goes on."""

    def broken() -> str:
        """Always fail."""
        raise ValueError("no luck")

    graph = desk(alice={"turns": [[call("broken"), call("read_card", user="u")], "done"], "tools": [broken, read_card]})
    out = graph.invoke(say("hi"), config)
    failed = next(m for m in out["messages"] if m.name == "broken")
    assert failed.status == "error"
    assert "no luck" in failed.text
    assert out["messages"][-1].text == "done"


@pytest.mark.parametrize("items", [["a"], ["a", "b"]])
def test_b1_a_handoff_beside_a_direct_answer_is_carried_out(desk: Desk, config: Any, items: list[str]) -> None:
    """B1: `return_direct` results beside a handoff are told to the receiver, who answers."""
    graph = desk(
        alice={
            "turns": [[*(call("price", item=each) for each in items), call("transfer_to_bob", reason="r")]],
            "tools": [price],
            "handoffs": ["bob"],
        },
        bob={"turns": ["hello"]},
    )
    out = graph.invoke(say("hi"), config)
    assert (out["active_agent"], out["messages"][-1].text) == ("bob", "hello")
    assert all(f"{each} costs 5" in model_of(graph, "bob").prompts[0][0].text for each in items)
    assert history_faults(out["messages"]) == []
