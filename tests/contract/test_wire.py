"""Every shape in which a client may answer, through a real graph."""

from __future__ import annotations

import json
from typing import Any

import pytest
from langgraph.types import Command

from langgraph_handoff import Handoff, Human, create_handoff_graph, decide, privileged
from langgraph_handoff.errors import NoOpenRequestError, StaleRequestError
from langgraph_handoff.testing import call, history_faults
from tests.conftest import Desk, run, say
from tests.unit.test_decisions import (
    agent_chat_ui_shows_buttons,
    agent_inbox_shows_fields,
    deep_agents_ui_offers_the_right_buttons,
    langchain_reads,
)


def a_known_button_is_offered(value: Any) -> bool:
    """agent-chat-ui and deep-agents-ui know these three decisions, Agent Inbox turns them into its own words."""
    return bool({"approve", "edit", "reject"} & set(value["review_configs"][0]["allowed_decisions"]))


SCREENS = [
    langchain_reads,
    agent_chat_ui_shows_buttons,
    agent_inbox_shows_fields,
    deep_agents_ui_offers_the_right_buttons,
    a_known_button_is_offered,
]

EDIT = {"name": "refund", "args": {"order": "A", "amount": "10"}}
DECISIONS: list[tuple[str, Any, list[Any]]] = [
    ("decisions approve", {"decisions": [{"type": "approve"}]}, [("A", 84.5)]),
    ("bare approve", {"type": "approve"}, [("A", 84.5)]),
    ("true", True, [("A", 84.5)]),
    ("resume wrapped", {"resume": {"decisions": [{"type": "approve"}]}}, [("A", 84.5)]),
    ("inbox accept with lost args", [{"type": "accept", "args": {"action": "refund", "args": {}}}], [("A", 84.5)]),
    ("inbox accept without args", [{"type": "accept", "args": None}], [("A", 84.5)]),
    ("edited_action with texts", {"decisions": [{"type": "edit", "edited_action": EDIT}]}, [("A", 10.0)]),
    ("editedAction", {"decisions": [{"type": "edit", "editedAction": EDIT}]}, [("A", 10.0)]),
    ("bare edit", {"type": "edit", "edited_action": EDIT}, [("A", 10.0)]),
    ("inbox edit", [{"type": "edit", "args": {"action": "refund", "args": EDIT["args"]}}], [("A", 10.0)]),
    ("decisions reject", {"decisions": [{"type": "reject", "message": "no"}]}, []),
    ("reject without a reason", {"decisions": [{"type": "reject"}]}, []),
    ("inbox response", [{"type": "response", "args": "no"}], []),
    ("false", False, []),
]
NO_DECISIONS: list[tuple[str, Any]] = [
    ("inbox ignore", [{"type": "ignore", "args": None}]),
    ("a chat string", "yes"),
    ("approve as words", "approve"),
    ("a folded message", {"role": "user", "content": "never mind"}),
    ("folded words", {"messages": "never mind"}),
    ("folded nonsense", {"messages": [5, {"no": "message"}]}),
    ("folded chat input", {"messages": [{"role": "user", "content": "never mind"}]}),
    ("an empty object", {}),
    ("an empty list", []),
    ("a number", 1),
    ("an unknown type", {"decisions": [{"type": "accept!"}]}),
    ("wrong case", {"decisions": [{"type": "Approve"}]}),
    ("two decisions for one action", {"decisions": [{"type": "approve"}, {"type": "approve"}]}),
    ("no decisions", {"decisions": []}),
    ("a verdict", {"verdict": "approve"}),
    ("a verdict with comments", {"type": "approve", "comments": "fine"}),
    ("a verdict that blocks", {"type": "block", "comments": "no"}),
    ("a verdict that wants changes", {"type": "request_changes"}),
    ("a verdict that takes note", {"verdict": "acknowledge"}),
    ("a decision as a text of JSON", '{"decisions": [{"type": "approve"}]}'),
    ("the old words outside their list", {"type": "accept"}),
    ("a decision in the old list", [{"type": "approve"}]),
    ("flags in a list", [True]),
    ("a flag as a text", "true"),
    ("another framework's word", {"approved": True}),
    ("a decision beside a chat turn", {"decisions": [{"type": "approve"}], "messages": []}),
    ("an approval with other arguments", {"type": "approve", "edited_action": EDIT}),
    ("wrapped twice", {"resume": {"resume": True}}),
    ("not allowed here", {"decisions": [{"type": "respond", "message": "42"}]}),
    ("another request", {"decisions": [{"type": "approve", "request_id": "other.1"}]}),
    ("another digest", {"decisions": [{"type": "approve", "digest": "0" * 64}]}),
    ("another epoch", {"decisions": [{"type": "approve", "epoch": 7}]}),
    ("an edit to another tool", {"decisions": [{"type": "edit", "edited_action": {"name": "drop_tables", "args": {}}}]}),
    ("an edit without arguments", {"decisions": [{"type": "edit", "edited_action": {"name": "refund"}}]}),
]
ran: list[Any] = []


def refund(order: str, amount: float) -> str:
    """Refund an order."""
    ran.append((order, amount))
    return "refunded"


def paused(desk: Desk) -> Any:
    ran.clear()
    return desk(alice={"turns": [call("refund", order="A", amount=84.5), "done", "done"], "tools": [privileged(refund)]})


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize(("answer", "runs"), [pytest.param(*row[1:], id=row[0]) for row in DECISIONS])
async def test_an_answer_of_a_known_client_is_understood(desk: Desk, config: Any, answer: Any, runs: Any, way: str) -> None:
    """Each known client's approval, edit and rejection does what the person meant, once."""
    graph = paused(desk)
    await run(graph, say("refund me"), config, way)
    out = await run(graph, Command(resume=answer), config, way)
    assert ran == runs
    assert "__interrupt__" not in out
    assert out["messages"][-1].text == "done"
    assert history_faults(out["messages"]) == []


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("answer", [pytest.param(row[1], id=row[0]) for row in NO_DECISIONS])
async def test_what_is_not_a_decision_keeps_the_request_open(desk: Desk, config: Any, answer: Any, way: str) -> None:
    """Anything that is not clearly a decision on this request runs nothing, says why, and leaves it answerable."""
    graph = paused(desk)
    await run(graph, say("refund me"), config, way)
    out = await run(graph, Command(resume=answer), config, way)
    assert ran == []
    assert out["__interrupt__"][0].value["handoff"]["note"]
    out = await run(graph, Command(resume={"decisions": [{"type": "approve"}]}), config, way)
    assert ran == [("A", 84.5)]
    assert history_faults(out["messages"]) == []


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("please hurry", "please hurry"),
        ({"role": "user", "content": "never mind"}, "never mind"),
        ({"messages": "never mind"}, "never mind"),
        ({"resume": "please hurry"}, "please hurry"),
        ({"messages": [{"role": "user", "content": "never mind"}]}, "never mind"),
    ],
)
def test_words_that_come_as_an_answer_are_kept(desk: Desk, config: Any, answer: Any, words: str) -> None:
    """A chat message that a client folds into its answer stands in the talk and in the next form of the request."""
    graph = paused(desk)
    graph.invoke(say("refund me"), config)
    out = graph.invoke(Command(resume=answer), config)
    assert out["__interrupt__"][0].value["handoff"]["latest_user_message"] == words
    assert words in [m.text for m in out["messages"] if m.type == "human"]


@pytest.mark.parametrize("way", ["sync", "async"])
async def test_an_answer_keyed_by_the_interrupt_s_id_is_for_that_one_only(desk: Desk, config: Any, way: str) -> None:
    """`{interrupt_id: answer}` answers that interrupt; a key that is not open is refused by name and runs nothing."""
    graph = paused(desk)
    out = await run(graph, say("refund me"), config, way)
    key = out["__interrupt__"][0].id
    with pytest.raises(StaleRequestError, match="is not open"):
        await run(graph, Command(resume={"0" * 32: {"type": "approve"}}), config, way)
    assert ran == []
    await run(graph, Command(resume={key: {"decisions": [{"type": "approve"}]}}), config, way)
    assert ran == [("A", 84.5)]
    with pytest.raises(NoOpenRequestError):
        await run(graph, Command(resume={key: {"type": "approve"}}), config, way)
    assert ran == [("A", 84.5)]


def broken(order: str, amount: float) -> str:
    """Refund an order."""
    raise TimeoutError("gateway")


KINDS: dict[str, list[Any]] = {
    "write": [call("refund", order="A", amount=84.5)],
    "repeat": [call("refund", order="A", amount=84.5), call("refund", order="A", amount=84.5)],
    "unknown": [call("broken", order="A", amount=84.5)],
    "transfer": [call("transfer_to_bob", reason="r")],
    "owner": [call("escalate", reason="r")],
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("screen", SCREENS)
def test_every_question_of_a_running_case_can_be_answered_on_every_screen(
    desk: Desk, config: Any, kind: str, screen: Any
) -> None:
    """Whatever is asked, each screen's own conditions hold, it has a button that it knows, and the payload is plain JSON."""
    graph = desk(
        Human(description="People"),
        alice={
            "turns": KINDS[kind],
            "tools": [privileged(refund), privileged(broken)],
            "handoffs": [Handoff(to="bob", approval=True)],
        },
        bob={"turns": []},
    )
    out = graph.invoke(say("refund me"), config)
    if kind in ("repeat", "unknown"):
        out = decide(graph, config, "approve", by="ana")
    (asked,) = out["__interrupt__"]
    assert asked.value["handoff"]["kind"] == kind
    assert screen(asked.value)
    assert json.loads(json.dumps(asked.value)) == asked.value
    assert len(asked.value["action_requests"]) == 1
    assert isinstance(asked.response_schema, dict)


@pytest.mark.parametrize(
    ("answer", "ends"),
    [
        ({"decisions": [{"type": "approve"}]}, "confirmed that it happened"),
        ([{"type": "accept", "args": None}], "confirmed that it happened"),
        ({"decisions": [{"type": "reject", "message": "leave it"}]}, "given up"),
        ([{"type": "response", "args": "leave it"}], "given up"),
    ],
)
def test_a_write_of_unknown_outcome_is_cleared_up_with_the_buttons_that_screens_have(
    desk: Desk, config: Any, answer: Any, ends: str
) -> None:
    """Where nobody knows what happened, approving says that it did and rejecting gives it up; the question says so, and nothing runs."""
    graph = desk(alice={"turns": KINDS["unknown"] + ["done"], "tools": [privileged(broken)]})
    graph.invoke(say("refund me"), config)
    (asked,) = decide(graph, config, "approve", by="ana")["__interrupt__"]
    said = asked.value["action_requests"][0]["description"]
    assert "approve: it happened" in said
    assert "reject: give it up" in said
    out = graph.invoke(Command(resume=answer), config)
    assert ends in next(m.text for m in out["messages"] if m.type == "tool")
    assert out["messages"][-1].text == "done"


def test_two_gated_calls_of_a_turn_are_one_question_at_a_time(desk: Desk, config: Any) -> None:
    """Several gated calls are asked one after the other: a bare answer never meets two interrupts or two actions."""
    ran.clear()
    calls = [call("refund", order=name, amount=1.0) for name in "ABC"]
    graph = desk(alice={"turns": [calls, "done"], "tools": [privileged(refund)]})
    out = graph.invoke(say("refund me"), config)
    for name in "ABC":
        (asked,) = out["__interrupt__"]
        assert [each["args"]["order"] for each in asked.value["action_requests"]] == [name]
        out = decide(graph, config, "approve", by="ana", request_id=asked.value["handoff"]["request_id"])
    assert ran == [("A", 1.0), ("B", 1.0), ("C", 1.0)]


@pytest.mark.parametrize("button", ["goto", "update_state"])
def test_mark_as_resolved_writes_nothing_and_loses_nothing(desk: Desk, config: Any, button: str) -> None:
    """The screens' "mark as resolved" buttons run no write, and the request is asked again with the user's next words."""
    graph = paused(desk)
    graph.invoke(say("refund me"), config)
    if button == "goto":
        graph.invoke(Command(goto="__end__"), config)
    else:
        graph.update_state(config, None, as_node="__end__")
    out = graph.invoke(say("still there?"), config)
    assert ran == []
    assert out["__interrupt__"][0].value["action_requests"][0]["name"] == "refund"
    out = graph.invoke(Command(resume={"decisions": [{"type": "approve"}]}), config)
    assert ran == [("A", 84.5)]
    assert history_faults(out["messages"]) == []


def test_the_public_face_is_what_was_agreed() -> None:
    """The names that users import are these."""
    import langgraph_handoff

    assert set(langgraph_handoff.__all__) == {
        "Agent", "CaseMemory", "Entry", "Evidence", "FirstMatch", "Handoff", "HandoffPackage", "HandoffState", "Human", "ModelRouter",
        "RuleRouter", "UserRouter",
        "aconnect", "add_handoffs", "adecide", "ahops", "ametrics", "connect", "create_handoff_graph", "create_handoff_tool", "decide",
        "hops", "metrics", "apending", "pending", "privileged",
    }  # fmt: skip
    assert create_handoff_graph is langgraph_handoff.create_handoff_graph
