"""The reader of answers fails closed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langgraph_handoff.decisions import (
    Decision,
    NotADecision,
    Request,
    coerce_args,
    read_answer,
    request_payload,
    response_schema,
)


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
    ({"type": "edit", "edited_action": {"name": "refund", "args": {}}}, None),
]


@pytest.mark.parametrize(("answer", "read"), UNKNOWN)
def test_an_unknown_outcome_is_started_again_by_plain_words_only(answer: Any, read: str | None) -> None:
    """About an unknown outcome nothing bare starts the write again; the request's id or the exact words do."""
    found = read_answer(answer, request("unknown", ("done", "did_not_happen", "abandon")))
    assert (found.type if isinstance(found, Decision) else None) == read


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "decisions", "args", "message", "messages", "edited_action", "resume", "verdict", "name", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=500, deadline=None)
@given(json_values)
def test_the_reader_takes_anything_and_approves_only_what_says_so(answer: Any) -> None:
    """For any JSON the reader answers without an exception, and nothing without a decision's own word approves or edits."""
    found = read_answer(answer, request())
    assert isinstance(found, Decision | NotADecision)
    if isinstance(found, Decision) and found.type in ("approve", "edit"):
        text = json.dumps(answer)
        assert any(word in text for word in ('"approve"', '"edit"', '"accept"', "true"))


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
        ("10", {"$ref": "#/$defs/X"}, {}, "10"),
    ],
)
def test_texts_of_a_screen_become_the_types_of_the_tool(sent: Any, schema: Any, original: Any, found: Any) -> None:
    """What a screen sends as a text is read by the tool's schema; what does not fit stays as it is, for validation to report."""
    assert coerce_args({"x": sent}, {"properties": {"x": schema}}, {"x": original}) == {"x": found}
    assert coerce_args({}, {"properties": {"x": schema}}, {"x": original}) == {}
