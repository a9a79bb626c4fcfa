"""Every shape in which a client may answer, through a real graph."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.types import Command

from langgraph_handoff import create_handoff_graph, privileged
from langgraph_handoff.errors import NoOpenRequestError, StaleRequestError
from langgraph_handoff.testing import call, history_faults
from tests.conftest import Desk, run, say

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
