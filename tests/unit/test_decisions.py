"""The reader of answers fails closed."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage

from langgraph_handoff.decisions import (
    Decision,
    NotADecision,
    Request,
    coerce_args,
    read_answer,
    request_payload,
    response_schema,
    words_in,
)
from langgraph_handoff.state import as_messages


def request(kind: Any = "write", allowed: tuple[str, ...] = ("approve", "edit", "reject")) -> Request:
    return Request(
        kind=kind, request_id="op-1.1", digest="d" * 64, epoch=1, case_id="c", agent="billing", hop_chain=("triage", "billing"), reason="due",
        tool="refund", args={"order": "A", "amount": 84.5}, description="**Refund**", allowed_decisions=allowed,
        args_schema={"type": "object", "properties": {"order": {"type": "string"}, "amount": {"type": "number"}}},
        latest_user_message="hi", expires_at=None, note="n", evidence={},
    )  # fmt: skip


def langchain_reads(value: Any) -> bool:
    """What LangChain's own request type asks for: equal numbers of actions and reviews, by name."""
    actions, reviews = value["action_requests"], value["review_configs"]
    return len(actions) == len(reviews) and all(
        a["name"] == r["action_name"] and r["allowed_decisions"] for a, r in zip(actions, reviews, strict=True)
    )


def agent_chat_ui_shows_buttons(value: Any) -> bool:
    """agent-chat-ui: non-empty lists; string names and object args; string action names and lists of decisions."""
    actions, reviews = value.get("action_requests"), value.get("review_configs")
    if not actions or not reviews:
        return False
    good = all(isinstance(a.get("name"), str) and isinstance(a.get("args"), dict) for a in actions)
    return good and all(isinstance(r.get("action_name"), str) and isinstance(r.get("allowed_decisions"), list) for r in reviews)


def agent_inbox_shows_fields(value: Any) -> bool:
    """Agent Inbox: the first action's `arguments`, and `reject` to offer its response box."""
    return bool(value["action_requests"][0]["arguments"]) and "reject" in value["review_configs"][0]["allowed_decisions"]


def deep_agents_ui_offers_the_right_buttons(value: Any) -> bool:
    """deep-agents-ui: reviews in camelCase, found by the action's name."""
    review = next((r for r in value["review_configs"] if r.get("actionName") == value["action_requests"][0]["name"]), None)
    return review is not None and review["allowedDecisions"] == review["allowed_decisions"]


@pytest.mark.parametrize(
    "screen", [langchain_reads, agent_chat_ui_shows_buttons, agent_inbox_shows_fields, deep_agents_ui_offers_the_right_buttons]
)
def test_one_payload_serves_every_screen(screen: Any) -> None:
    """The payload fulfils each screen's own conditions at once, and is plain JSON."""
    value = request_payload(request())
    assert screen(value)
    assert json.loads(json.dumps(value)) == value
    assert "action_request" not in value


def test_the_response_schema_has_a_branch_for_each_decision() -> None:
    """The shown schema offers the allowed decisions, and an edit with the tool's own arguments."""
    branches = response_schema(request())["properties"]["decisions"]["items"]["oneOf"]
    assert [each["properties"]["type"]["const"] for each in branches] == ["approve", "edit", "reject"]
    assert branches[1]["properties"]["edited_action"]["properties"]["args"]["properties"]["amount"] == {"type": "number"}


def test_the_response_schema_asks_for_what_the_reader_needs() -> None:
    """What the reader takes only with the request's id or with words says so in the schema, and references resolve."""
    asked = request("unknown", ("done", "did_not_happen", "respond"))
    branches = response_schema(asked)["properties"]["decisions"]["items"]["oneOf"]
    assert [each["required"] for each in branches] == [["type"], ["type", "request_id"], ["type", "message"]]
    tool = {"properties": {"size": {"$ref": "#/$defs/Size"}}, "$defs": {"Size": {"enum": [1, 2]}}}
    schema = response_schema(dataclasses.replace(request(), args_schema=tool))
    assert schema["$defs"] == tool["$defs"]
    edit = schema["properties"]["decisions"]["items"]["oneOf"][1]["properties"]["edited_action"]["properties"]["args"]
    assert edit == {"properties": tool["properties"]}
    assert "$defs" in tool


ARGS = {"order": "A", "amount": 84.5}
EDITED = {"order": "A", "amount": "10"}
ACTION = {"name": "refund", "args": EDITED}
EDIT = Decision(type="edit", args=EDITED, tool="refund")
APPROVE, REJECT = Decision(type="approve"), Decision(type="reject")
NAMED = {"request_id": "op-1.1", "digest": "d" * 64, "epoch": 1}
READ: list[tuple[str, Any, Decision]] = [
    ("decisions", {"decisions": [{"type": "approve"}]}, APPROVE),
    ("bare", {"type": "approve"}, APPROVE),
    ("true", True, APPROVE),
    ("false", False, REJECT),
    ("resume around decisions", {"resume": {"decisions": [{"type": "approve"}]}}, APPROVE),
    ("resume around a flag", {"resume": False}, REJECT),
    ("resume around a list", {"resume": [{"type": "accept", "args": None}]}, APPROVE),
    ("reject without words", {"decisions": [{"type": "reject"}]}, REJECT),
    ("reject with words", {"type": "reject", "message": "no"}, Decision(type="reject", message="no")),
    ("reject of an edited action", {"type": "reject", "edited_action": ACTION}, REJECT),
    ("edited_action", {"decisions": [{"type": "edit", "edited_action": ACTION}]}, EDIT),
    ("editedAction", {"decisions": [{"type": "edit", "editedAction": ACTION}]}, EDIT),
    ("one spelling is empty", {"type": "edit", "edited_action": None, "editedAction": ACTION}, EDIT),
    ("edit without a name", {"type": "edit", "edited_action": {"args": EDITED}}, Decision(type="edit", args=EDITED)),
    ("edit to nothing", {"type": "edit", "edited_action": {"name": "refund", "args": {}}}, Decision(type="edit", args={}, tool="refund")),
    ("unchanged edit", {"type": "edit", "edited_action": {"name": "refund", "args": dict(ARGS)}}, APPROVE),
    ("unchanged edit of the inbox", [{"type": "edit", "args": {"action": "refund", "args": dict(ARGS)}}], APPROVE),
    (
        "unchanged but for the tool",
        {"type": "edit", "edited_action": {"name": "drop", "args": ARGS}},
        Decision(type="edit", args=ARGS, tool="drop"),
    ),
    ("inbox accept", [{"type": "accept", "args": None}], APPROVE),
    ("inbox accept with other args", [{"type": "accept", "args": {"action": "refund", "args": EDITED}}], APPROVE),
    ("inbox edit", [{"type": "edit", "args": {"action": "refund", "args": EDITED}}], EDIT),
    ("inbox response", [{"type": "response", "args": "no"}], Decision(type="reject", message="no")),
    ("names in the decision", {"decisions": [{"type": "approve", **NAMED}]}, Decision(type="approve", **NAMED)),
    ("names at the top", {"decisions": [{"type": "approve"}], **NAMED}, Decision(type="approve", **NAMED)),
    ("names echoed", {"decisions": [{"type": "approve"}], "handoff": NAMED}, Decision(type="approve", **NAMED)),
    ("names echoed in the decision", {"type": "reject", "handoff": NAMED}, Decision(type="reject", **NAMED)),
    ("names in the inbox", [{"type": "accept", **NAMED}], Decision(type="approve", **NAMED)),
    ("empty names", {"type": "approve", "request_id": None, "epoch": None}, APPROVE),
    ("who, nearest first", {"decisions": [{"type": "reject", "by": "ana"}], "by": "app"}, Decision(type="reject", by="ana")),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "decision"), [pytest.param(*row[1:], id=row[0]) for row in READ])
def test_each_known_shape_is_read_as_it_was_meant(answer: Any, decision: Decision) -> None:
    """Every client's way to say a decision gives that decision, whole and with nothing added."""
    assert read_answer(answer, request()) == decision
    assert decision.bare == (decision.request_id is None)


NOT_UNDERSTOOD, ONE = "The answer was not understood", "exactly one decision"
REFUSED: list[tuple[str, Any, str]] = [
    ("none", None, NOT_UNDERSTOOD),
    ("one", 1, NOT_UNDERSTOOD),
    ("zero", 0, NOT_UNDERSTOOD),
    ("one point nought", 1.0, NOT_UNDERSTOOD),
    ("empty object", {}, NOT_UNDERSTOOD),
    ("blank text", "  ", "Words alone"),
    ("empty list", [], ONE),
    ("no decisions", {"decisions": []}, ONE),
    ("two decisions", {"decisions": [{"type": "approve"}, {"type": "approve"}]}, ONE),
    ("decisions as an object", {"decisions": {"type": "approve"}}, ONE),
    ("decisions as a word", {"decisions": "approve"}, ONE),
    ("decisions as a letter", {"decisions": "a"}, NOT_UNDERSTOOD),
    ("a flag among decisions", {"decisions": [True]}, NOT_UNDERSTOOD),
    ("two in the inbox", [{"type": "accept"}, {"type": "accept"}], ONE),
    ("a flag in a list", [True], ONE),
    ("resume twice", {"resume": {"resume": True}}, NOT_UNDERSTOOD),
    ("resume and more", {"resume": True, "x": 1}, NOT_UNDERSTOOD),
    ("wrong case", {"type": "Approve"}, NOT_UNDERSTOOD),
    ("blanks around", {"type": " approve "}, NOT_UNDERSTOOD),
    ("unknown type", {"type": "ok"}, NOT_UNDERSTOOD),
    ("no text as type", {"type": ["approve"]}, NOT_UNDERSTOOD),
    ("an inbox word outside its list", {"type": "accept"}, NOT_UNDERSTOOD),
    ("a decision's word in the inbox", [{"type": "approve"}], NOT_UNDERSTOOD),
    ("inbox edit of nothing", [{"type": "edit", "args": None}], NOT_UNDERSTOOD),
    ("inbox response of no text", [{"type": "response", "args": None}], NOT_UNDERSTOOD),
    ("inbox ignore", [{"type": "ignore", "args": None}], "left open"),
    ("a message of an assistant", {"type": "approve", "role": "assistant", "content": "approve"}, NOT_UNDERSTOOD),
    ("verdict", {"verdict": "approve"}, "verdict"),
    ("verdict in a decision", {"decisions": [{"verdict": "approve"}]}, "verdict"),
    ("verdict beside a decision", {"decisions": [{"type": "approve"}], "verdict": "block"}, "verdict"),
    ("verdict beside a type", {"type": "approve", "verdict": "approve"}, "verdict"),
    ("verdict with comments", {"type": "approve", "comments": "fine"}, "verdict"),
    ("request changes", {"type": "request_changes", "comments": "x"}, "verdict"),
    ("block", {"type": "block"}, "verdict"),
    ("acknowledge", {"decisions": [{"type": "acknowledge"}]}, "verdict"),
    ("not allowed", {"type": "respond", "message": "x"}, "allowed: approve, edit, reject"),
    ("a word for unknown outcomes", {"type": "done"}, "allowed: approve, edit, reject"),
    ("edit without an action", {"type": "edit"}, "`edited_action`"),
    ("edit without arguments", {"type": "edit", "edited_action": {"name": "refund"}}, "`edited_action`"),
    ("edit with a list", {"type": "edit", "edited_action": {"name": "refund", "args": [1]}}, "`edited_action`"),
    ("edit with a text", {"type": "edit", "edited_action": {"name": "refund", "args": "{}"}}, "`edited_action`"),
    ("edit as the inbox, without its list", {"type": "edit", "args": {"action": "refund", "args": {}}}, "`edited_action`"),
    ("approval with other arguments", {"type": "approve", "edited_action": ACTION}, "as an edit"),
    ("other id", {"decisions": [{"type": "approve", "request_id": "op-1.2"}]}, "request op-1.2"),
    ("other id at the top", {"decisions": [{"type": "approve"}], "request_id": "op-1.2"}, "request op-1.2"),
    ("other id echoed", {"type": "approve", "handoff": {"request_id": "op-1.2"}}, "request op-1.2"),
    ("other id behind the right one", {"decisions": [{"type": "approve", **NAMED}], "request_id": "op-1.2"}, "request op-1.2"),
    ("other id behind none", {"decisions": [{"type": "approve", "request_id": None}], "request_id": "op-1.2"}, "request op-1.2"),
    ("other id in the inbox", [{"type": "accept", "request_id": "op-1.2"}], "request op-1.2"),
    ("other id in a wrapper", {"resume": {"type": "approve", "request_id": "op-1.2"}}, "request op-1.2"),
    ("a long id", {"type": "approve", "request_id": "x" * 999}, f"request {'x' * 80}, which"),
    ("id as a number", {"type": "approve", "request_id": 1}, "request 1,"),
    ("other digest", {"type": "approve", "digest": "0" * 64}, "other arguments"),
    ("other digest echoed", {"type": "approve", **NAMED, "handoff": {"digest": "0"}}, "other arguments"),
    ("other epoch", {"type": "approve", "epoch": 2}, "earlier form"),
    ("epoch as a text", {"type": "approve", "epoch": "1"}, "earlier form"),
    ("epoch as a flag", {"type": "approve", "epoch": True}, "earlier form"),
    ("other epoch echoed", {"decisions": [{"type": "approve"}], "handoff": {"epoch": 0}}, "earlier form"),
]


@pytest.mark.parametrize(("answer", "why"), [pytest.param(*row[1:], id=row[0]) for row in REFUSED])
def test_what_is_not_clearly_a_decision_is_none_and_says_why(answer: Any, why: str) -> None:
    """Whatever is unclear, not allowed or meant for another request is no decision, and the reason names what is wrong."""
    found = read_answer(answer, request())
    assert isinstance(found, NotADecision)
    assert why in found.why
    assert found.messages == ()


TURN = {"role": "user", "content": "wait"}
BLOCKS = [{"type": "text", "text": "wait"}]
WORDS: list[tuple[str, Any, tuple[Any, ...]]] = [
    ("text", "approve", ("approve",)),
    ("blank text", "  ", ()),
    ("JSON in a text", '{"decisions": [{"type": "approve"}]}', ('{"decisions": [{"type": "approve"}]}',)),
    ("text in a wrapper", {"resume": "approve"}, ("approve",)),
    ("one message", TURN, (TURN,)),
    ("one message in the host's spelling", {"type": "human", "content": "wait"}, (TURN,)),
    ("a pair", ("user", "wait"), (("user", "wait"),)),
    ("a pair in JSON", ["user", "wait"], (("user", "wait"),)),
    ("a list of messages", [TURN, "hm"], (TURN, "hm")),
    ("folded input", {"messages": [TURN]}, (TURN,)),
    ("folded text", {"messages": "wait"}, ("wait",)),
    ("folded pair", {"messages": [["user", "wait"]]}, (("user", "wait"),)),
    ("folded blocks with an id", {"messages": {"type": "human", "content": BLOCKS, "id": "m"}}, ({"role": "user", "content": BLOCKS, "id": "m"},)),
    ("a message object", {"messages": [HumanMessage("wait", id="m")]}, (HumanMessage("wait", id="m"),)),
    ("nobody's words", {"messages": [5, None, {"a": 1}, {"role": "assistant", "content": "x"}, {"role": "user", "content": 5}]}, ()),
    ("blocks that are none", {"messages": [{"role": "user", "content": [5]}]}, ()),
    ("an id that is no text", {**TURN, "id": 5}, (TURN,)),
    ("no messages", {"messages": []}, ()),
    ("words with a decision", {"decisions": [{"type": "approve"}], "messages": [TURN]}, (TURN,)),
    ("words with a bare decision", {"type": "approve", "messages": [TURN]}, (TURN,)),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "words"), [pytest.param(*row[1:], id=row[0]) for row in WORDS])
def test_words_are_kept_and_decide_nothing(answer: Any, words: tuple[Any, ...]) -> None:
    """A chat turn is never a decision, also beside one, and the user's words in it are kept as the host can read them."""
    found = read_answer(answer, request())
    assert isinstance(found, NotADecision)
    assert found.messages == words == words_in(answer)
    assert all(message.type == "human" for each in words for message in as_messages(each))


def test_an_unchanged_edit_must_be_allowed_as_what_it_is() -> None:
    """Where only edits are allowed, an edit that changes nothing does not approve; where no edit is allowed, neither."""
    same = {"type": "edit", "edited_action": {"name": "refund", "args": dict(ARGS)}}
    for allowed in (("edit", "reject"), ("approve", "reject")):
        assert isinstance(read_answer(same, request(allowed=allowed)), NotADecision)


@pytest.mark.parametrize("amount", [True, 1.0, "1"])
def test_an_edit_that_changes_only_a_type_is_an_edit(amount: Any) -> None:
    """Values that Python holds for equal, but JSON does not, are not what the person was shown."""
    shown = dataclasses.replace(request(), args={"amount": 1, "items": [{"n": 1}]})
    for args in ({"amount": amount, "items": [{"n": 1}]}, {"amount": 1, "items": [{"n": amount}]}):
        assert read_answer({"type": "edit", "edited_action": {"args": args}}, shown) == Decision(type="edit", args=args)


@pytest.mark.parametrize("message", [None, "", " ", 5])
def test_a_response_needs_words(message: Any) -> None:
    """A response stands for the tool's result, so it is none without a text."""
    asked = request(allowed=("respond",))
    assert isinstance(read_answer({"type": "respond", "message": message}, asked), NotADecision)
    assert read_answer({"type": "respond", "message": "42"}, asked) == Decision(type="respond", message="42")


# What real clients sent, shortened to the resume value. agent-chat-ui fdc87e6, agent-inbox f38301b.
SENT_ARGS = {"order_id": "#W2378156", "amount": 84.5, "items": ["a", "b"], "notify": True, "meta": {"x": 1}}
SENT_EDIT = {**SENT_ARGS, "amount": "10"}
CLIENTS: list[tuple[str, Any, tuple[str, dict[str, Any] | None, str | None] | None]] = [
    ("chat-ui approves two of one", {"decisions": [{"type": "approve"}, {"type": "approve"}]}, None),
    (
        "chat-ui edits one and rejects another of one",
        {"decisions": [{"type": "edit", "edited_action": {"name": "pay", "args": SENT_EDIT}}, {"type": "reject", "message": "x"}]},
        None,
    ),
    (
        "chat-ui edits",
        {"decisions": [{"type": "edit", "edited_action": {"name": "pay", "args": {**SENT_EDIT, "notify": "false", "meta": '{"x": 2}'}}}]},
        ("edit", {**SENT_ARGS, "amount": 10, "notify": False, "meta": {"x": 2}}, None),
    ),
    ("chat-ui rejects", {"decisions": [{"type": "reject", "message": "not verified"}]}, ("reject", None, "not verified")),
    ("inbox accepts", [{"type": "accept", "args": {"action": "pay", "args": SENT_ARGS}}], ("approve", None, None)),
    ("inbox accepts with lost arguments", [{"type": "accept", "args": {"action": "pay", "args": {}}}], ("approve", None, None)),
    ("inbox edits", [{"type": "edit", "args": {"action": "pay", "args": SENT_EDIT}}], ("edit", {**SENT_ARGS, "amount": 10}, None)),
    ("inbox ignores", [{"type": "ignore", "args": None}], None),
    ("inbox responds", [{"type": "response", "args": "no"}], ("reject", None, "no")),
    ("chat-ui's own message", {"messages": [{"id": "61fc", "type": "human", "content": BLOCKS}]}, None),
]  # fmt: skip
PAY = {
    "properties": {
        "order_id": {"type": "string"}, "amount": {"type": "number"}, "items": {"type": "array", "items": {"type": "string"}},
        "notify": {"type": "boolean"}, "meta": {"type": "object", "additionalProperties": True},
    }
}  # fmt: skip


@pytest.mark.parametrize(("answer", "meant"), [pytest.param(*row[1:], id=row[0]) for row in CLIENTS])
def test_recorded_answers_of_real_clients_mean_what_their_buttons_say(answer: Any, meant: Any) -> None:
    """What real screens sent is read as the button that was pressed, with edited values in the tool's types."""
    asked = dataclasses.replace(request(), tool="pay", args=dict(SENT_ARGS), args_schema=PAY)
    found = read_answer(answer, asked)
    if meant is None:
        assert isinstance(found, NotADecision)
        return
    assert isinstance(found, Decision)
    args = coerce_args(found.args, PAY, asked.args) if found.args is not None else None
    assert (found.type, args, found.message) == meant
    assert args is None or json.dumps(args, sort_keys=True) == json.dumps(meant[1], sort_keys=True)


UNKNOWN: list[tuple[Any, str | None]] = [
    ({"type": "approve"}, "done"),
    (True, "done"),
    ({"type": "done"}, "done"),
    ({"type": "reject"}, "abandon"),
    (False, "abandon"),
    ({"type": "abandon"}, "abandon"),
    ({"type": "did_not_happen"}, None),
    ({"type": "did_not_happen", "request_id": "op-1.1"}, "did_not_happen"),
    ({"type": "did_not_happen", "request_id": "op-1.2"}, None),
    ({"type": "respond", "message": "It did not happen, run it"}, "did_not_happen"),
    ({"type": "respond", "message": "did not happen"}, "did_not_happen"),
    ({"type": "respond", "message": "maybe it did not happen?"}, None),
    ({"type": "respond", "message": "it did not happen yet, wait"}, None),
    ({"type": "edit", "edited_action": {"name": "refund", "args": {}}}, None),
]


@pytest.mark.parametrize(("answer", "read"), UNKNOWN)
def test_an_unknown_outcome_is_started_again_by_plain_words_only(answer: Any, read: str | None) -> None:
    """About an unknown outcome nothing bare starts the write again; the request's id or the exact words do."""
    found = read_answer(answer, request("unknown", ("done", "did_not_happen", "abandon")))
    assert (found.type if isinstance(found, Decision) else None) == read


def test_about_an_unknown_outcome_a_wrong_name_decides_nothing() -> None:
    """An answer for another request is refused before its words count."""
    asked = request("unknown", ("done", "did_not_happen", "abandon"))
    said = {"type": "respond", "message": "did not happen", "handoff": {"epoch": 0}}
    assert isinstance(read_answer(said, asked), NotADecision)
    kept = read_answer({"decisions": [{"type": "approve", "by": "ana", "message": "seen", **NAMED}]}, asked)
    assert kept == Decision(type="done", by="ana", message="seen", **NAMED)


KEYS = [
    "type", "decisions", "args", "action", "message", "messages", "edited_action", "editedAction", "resume", "verdict", "comments",
    "name", "role", "content", "handoff", "request_id", "digest", "epoch", "by", "id", "x",
]  # fmt: skip
DECIDING = ("approve", "edit", "accept")
OTHER_WORDS = [
    "reject",
    "respond",
    "response",
    "ignore",
    "done",
    "abandon",
    "did_not_happen",
    "user",
    "human",
    "op-1.1",
    "Approve",
    "yes",
]
texts = st.text(max_size=8).filter(lambda text: text not in DECIDING) | st.sampled_from(OTHER_WORDS)
plain = st.none() | st.integers() | st.floats(allow_nan=False) | texts


def json_of(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """JSON whose keys are those that some client uses."""
    keyed = st.sampled_from(KEYS)
    return st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(keyed, inner, max_size=4), max_leaves=12
    )


requests = st.sampled_from(
    [
        request(),
        request(allowed=("reject", "respond")),
        request("repeat", ("approve", "reject")),
        request("unknown", ("done", "did_not_happen", "abandon")),
    ]
)
names = st.fixed_dictionaries(
    {},
    optional={
        "request_id": st.sampled_from([None, "op-1.1", "op-1.2", 1]),
        "digest": st.sampled_from([None, "d" * 64, "0"]),
        "epoch": st.sampled_from([None, 1, 2, True, "1"]),
    },
)


@settings(max_examples=400, deadline=None)
@given(json_of(plain | st.booleans() | st.sampled_from([*DECIDING, *OTHER_WORDS])), requests)
def test_the_reader_takes_any_json(answer: Any, asked: Request) -> None:
    """For any JSON the reader gives a decision that is allowed, or a reason and words that the host can read; it never raises."""
    found = read_answer(answer, asked)
    if isinstance(found, Decision):
        assert found.type in asked.allowed_decisions
        assert (found.args is not None) == (found.type == "edit")
        assert found.request_id in (None, asked.request_id)
    else:
        assert found.why
        assert all(message.type == "human" for each in found.messages for message in as_messages(each))


@settings(max_examples=400, deadline=None)
@given(json_of(plain), requests)
def test_nothing_starts_a_write_without_a_word_that_says_so(answer: Any, asked: Request) -> None:
    """JSON without `true` and without one of the words approve, edit and accept never approves and never edits."""
    found = read_answer(answer, asked)
    assert not (isinstance(found, Decision) and found.type in ("approve", "edit"))


@settings(max_examples=300, deadline=None)
@given(names, names, names)
def test_an_answer_counts_only_if_all_that_it_names_is_this_request(inner: Any, outer: Any, echoed: Any) -> None:
    """Wherever an answer names a request, one wrong name is enough to refuse it, and right ones are kept."""
    answer = {"decisions": [{"type": "approve", **inner}], **outer, "handoff": echoed}
    right = {"request_id": "op-1.1", "digest": "d" * 64, "epoch": 1}
    given = [(name, value) for place in (inner, outer, echoed) for name, value in place.items() if value is not None]
    fits = all(json.dumps(value) == json.dumps(right[name]) for name, value in given)
    found = read_answer(answer, request())
    assert isinstance(found, Decision) == fits
    if isinstance(found, Decision):
        assert {name: getattr(found, name) for name in right} == {name: dict(given).get(name) for name in right}


def test_no_depth_of_nesting_stops_the_reader() -> None:
    """An answer that is nested as deep as no client sends it is no decision, and a text that is no JSON to us stays a text."""
    answer: Any = True
    for _ in range(5000):
        answer = {"resume": answer}
    assert isinstance(read_answer(answer, request()), NotADecision)
    deep = "[" * 100_000
    assert coerce_args({"x": deep}, {"properties": {"x": {"type": "array"}}}, {"x": []}) == {"x": deep}


@pytest.mark.parametrize(
    ("sent", "schema", "original", "found"),
    [
        ("10", {"type": "number"}, 5, 10),
        ("10", {"type": "integer"}, 5, 10),
        ("1.5", {"type": "number"}, 5, 1.5),
        ("true", {"type": "boolean"}, False, True),
        ("False", {"type": "boolean"}, True, False),
        ('["a"]', {"type": "array"}, [], ["a"]),
        ('{"x": 1}', {"type": "object"}, {}, {"x": 1}),
        ("null", {"anyOf": [{"type": "integer"}, {"type": "null"}]}, 5, None),
        ("10", {"type": "string"}, "5", "10"),
        ("10", {"anyOf": [{"type": "string"}, {"type": "null"}]}, None, "10"),
        ("much", {"type": "number"}, 5, "much"),
        ("7", {"enum": [1, 7]}, 1, 7),
        ("10", {}, 5, 10),
        (10, {"type": "number"}, 5, 10),
        ("9" * 5000, {"type": "integer"}, 5, "9" * 5000),
        ("1", {"type": "boolean"}, False, "1"),
        ("", {"type": "number"}, 5, ""),
        ("10", {"type": "number"}, "5", 10),
        ("10", {}, "5", "10"),
        ("10", True, 5, 10),
        ("3", {"anyOf": [{"type": "number"}, {"type": "string"}]}, 3, 3),
        ("4", {"anyOf": [{"type": "number"}, {"type": "string"}]}, 3, "4"),
        ("null", {"anyOf": [{"type": "string"}, {"type": "null"}]}, None, None),
        ("null", {"anyOf": [{"type": "string"}, {"type": "null"}]}, "a", "null"),
        ("true", {"type": "string"}, "a", "true"),
        ("True", {"anyOf": [{"type": "boolean"}, {"type": "string"}]}, False, "True"),
        ("3", {"$ref": "#/$defs/Size"}, 1, 3),
        ("b", {"$ref": "#/$defs/Name"}, "a", "b"),
        ("7", {"$ref": "#/$defs/Loop"}, [], "7"),
        ("10", {"$ref": "#/$defs/X"}, {}, "10"),
    ],
)
def test_texts_of_a_screen_become_the_types_of_the_tool(sent: Any, schema: Any, original: Any, found: Any) -> None:
    """What a screen sends as a text is read by the tool's schema; what does not fit stays as it is, for validation to report."""
    named = {"Size": {"enum": [1, 3]}, "Name": {"enum": ["a", "b"], "type": "string"}, "Loop": {"$ref": "#/$defs/Loop"}}
    tool = {"properties": {"x": schema}, "$defs": named}
    read = coerce_args({"x": sent}, tool, {"x": original})
    assert (read, type(read["x"])) == ({"x": found}, type(found))
    assert coerce_args({}, tool, {"x": original}) == {}
    assert coerce_args({"y": "1"}, tool, {"x": original}) == {"y": "1"}
