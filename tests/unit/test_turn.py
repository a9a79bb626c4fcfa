"""Sorting a reply: pure, and each call answered, carried out, or the ending, exactly once."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage
from langchain_core.tools import StructuredTool

from langgraph_handoff.testing import call, history_faults
from langgraph_handoff.turn import Held, is_empty, is_spent, next_work, plan_turn, refusal


def _made(name: str) -> StructuredTool:
    def run(n: int = 0) -> str:
        """Do something."""
        return name

    return StructuredTool.from_function(run, name=name)


HELD: dict[str, Held] = {
    "look": Held("read", _made("look")),
    "pay": Held("write", _made("pay"), asks=True),
    "to_a": Held("transfer", _made("to_a")),
    "to_b": Held("transfer", _made("to_b")),
    "close": Held("close", _made("close")),
    "spent": Held("transfer", _made("spent"), "no more handoffs"),
}
KINDS: dict[str, Any] = {name: held.kind for name, held in HELD.items()}


def reply(*names: str, same: bool = False, **more: Any) -> AIMessage:
    calls = [call(name, call_id=str(i), n=0 if same else i) for i, name in enumerate(names)]
    return AIMessage("", id="m", tool_calls=calls, **more)


TABLE: list[tuple[str, AIMessage, dict[str, Any]]] = [
    ("a read", reply("look"), {"work": ["look"], "ending": None, "results": 0}),
    ("a read beside a handoff", reply("look", "to_a"), {"work": ["look"], "ending": "to_a", "results": 0}),
    ("a handoff beside a read", reply("to_a", "look"), {"work": ["look"], "ending": "to_a", "results": 0}),
    ("a write beside a handoff", reply("pay", "to_a"), {"work": ["pay"], "ending": "to_a", "results": 0}),
    ("two handoffs", reply("to_a", "to_b"), {"ending": "to_a", "queued": ["to_b"], "results": 1}),
    ("the same handoff twice", reply("to_a", "to_a"), {"ending": "to_a", "queued": [], "results": 1}),
    ("three handoffs", reply("to_b", "to_a", "to_b"), {"ending": "to_b", "queued": ["to_a"], "results": 2}),
    ("closing and a handoff", reply("close", "to_a"), {"ending": "close", "queued": ["to_a"], "results": 1}),
    ("a handoff and closing", reply("to_a", "close"), {"ending": "to_a", "queued": [], "results": 1}),
    ("a foreign tool", reply("other", "look"), {"work": ["look"], "forbidden": ["other"], "results": 1}),
    ("a withheld tool", reply("spent"), {"withheld": ["spent"], "results": 1, "ending": None}),
    ("the same read twice", reply("look", "look", same=True), {"work": ["look"], "results": 1}),
    ("the same write twice", reply("pay", "pay", same=True), {"work": ["pay"], "results": 1}),
    ("other arguments", reply("pay", "pay"), {"work": ["pay", "pay"], "results": 0}),
    (
        "a write with wrong arguments",
        AIMessage("", id="m", tool_calls=[call("pay", call_id="1", n="x")]),
        {"work": [], "results": 1},
    ),
    ("words only", AIMessage("hello", id="m"), {"work": [], "results": 0, "ending": None}),
]


@pytest.mark.parametrize(("said", "expected"), [pytest.param(*row[1:], id=row[0]) for row in TABLE])
def test_a_reply_is_sorted(said: AIMessage, expected: dict[str, Any]) -> None:
    """Each kind of reply is sorted as the table says."""
    plan = plan_turn(said, HELD)
    found = {
        "work": [each["name"] for each in plan.work],
        "ending": plan.ending["name"] if plan.ending else None,
        "queued": [each["name"] for each in plan.queued],
        "forbidden": list(plan.forbidden),
        "withheld": list(plan.withheld),
        "results": len(plan.results),
    }
    assert {name: found[name] for name in expected} == expected


raw_calls = st.lists(
    st.tuples(
        st.sampled_from([*HELD, "other", "LOOK", ""]),
        st.sampled_from([None, "", "1", "2"]),
        st.sampled_from([{}, {"n": 1}, {"n": "x"}, {"m": []}]),
    ),
    max_size=6,
)
bad_calls = st.lists(st.tuples(st.sampled_from([None, "look", "pay"]), st.sampled_from([None, "1", "9"])), max_size=3)


@settings(max_examples=400, deadline=None)
@given(raw_calls, bad_calls, st.sets(st.sampled_from(["1", "2", "9"])), st.sampled_from([None, "m"]))
def test_every_call_is_answered_or_carried_out_exactly_once(good: Any, bad: Any, used: set[str], message_id: str | None) -> None:
    """For any reply each call has an id of its own, and is answered, carried out, or the ending: one of these, once."""
    said = AIMessage(
        "",
        id=message_id,
        tool_calls=[{"name": name, "id": call_id, "args": args, "type": "tool_call"} for name, call_id, args in good],
        invalid_tool_calls=[
            {"name": name, "id": call_id, "args": "{", "error": None, "type": "invalid_tool_call"} for name, call_id in bad
        ],
    )
    plan = plan_turn(said, HELD, used_ids=used)
    ids = [each["id"] for each in plan.reply.tool_calls]
    assert len(ids) == len(set(ids)) == len(good) + len(bad)
    assert not set(ids) & used
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", str(each)) for each in ids)  # the ids that every hosted provider takes
    assert plan.reply.invalid_tool_calls == []
    fates = [
        *(r.tool_call_id for r in plan.results),
        *(w["id"] for w in plan.work),
        *([plan.ending["id"]] if plan.ending else []),
    ]
    assert sorted(map(str, fates)) == sorted(map(str, ids))
    carried = [HELD[each["name"]].kind for each in plan.work]
    assert set(carried) <= {"read", "write"}


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(["look", "pay", "to_a"]), max_size=7))
def test_work_is_done_in_the_order_of_the_message(names: list[str]) -> None:
    """Reads that stand together run together, each write alone in its place, and the ending comes last."""
    plan = plan_turn(reply(*names), HELD)
    open_ids = {str(each["id"]) for each in plan.reply.tool_calls} - {each.tool_call_id for each in plan.results}
    done: list[str] = []
    while work := next_work(plan.reply, open_ids, KINDS):
        if work.kind == "write":
            assert len(work.calls) == 1
        done += [str(each["id"]) for each in work.calls]
        open_ids -= {str(each["id"]) for each in work.calls}
    expected = [str(each["id"]) for each in plan.work] + ([str(plan.ending["id"])] if plan.ending else [])
    assert done == expected


@pytest.mark.parametrize(
    ("said", "empty"),
    [
        (AIMessage(""), True),
        (AIMessage(" \n"), True),
        (AIMessage([]), True),
        (AIMessage([{"type": "reasoning", "reasoning": "hm"}]), True),
        (AIMessage([{"type": "text", "text": "x"}]), False),
        (AIMessage([{"type": "image", "url": "http://x/y.png"}]), False),
        (reply("look"), False),
    ],
)
def test_an_empty_reply_is_known(said: AIMessage, empty: bool) -> None:
    """A reply that neither says nor calls anything is empty; thinking alone says nothing."""
    assert is_empty(said) is empty


def test_repaired_ids_are_repaired_in_content_too() -> None:
    """When ids are repaired no stale copy of the calls is left in content blocks or provider extras."""
    said = AIMessage(
        [{"type": "text", "text": "x"}, {"type": "tool_use", "id": "1", "name": "look", "input": {}}],
        id="m",
        tool_calls=[call("look", call_id="1"), call("look", call_id="1", n=2)],
        additional_kwargs={"tool_calls": [{"id": "1"}]},
    )
    repaired = plan_turn(said, HELD).reply
    assert repaired.content == [{"type": "text", "text": "x"}]
    assert "tool_calls" not in repaired.additional_kwargs
    assert history_faults([repaired]) == [f"message 0: call '{each['id']}' has no result" for each in repaired.tool_calls]


def test_a_foreign_tool_s_refusal_helps() -> None:
    """The refusal of a tool that is not held names the nearest one and what is offered."""
    (refused,) = plan_turn(reply("tо_a"), HELD).results
    assert "You hold no tool called" in refused.text
    assert "close, look, pay, to_a, to_b" in refused.text
    (near,) = plan_turn(reply("pays"), HELD).results
    assert "Did you mean pay?" in near.text


WORK: list[tuple[str, list[str], set[str], tuple[str, list[str]] | None]] = [
    ("reads together", ["look", "look", "pay", "to_a"], set(), ("read", ["0", "1"])),
    ("then the write", ["look", "look", "pay", "to_a"], {"0", "1"}, ("write", ["2"])),
    ("then the ending", ["look", "look", "pay", "to_a"], {"0", "1", "2"}, ("transfer", ["3"])),
    ("then nothing", ["look", "look", "pay", "to_a"], {"0", "1", "2", "3"}, None),
    ("a write first", ["pay", "look", "pay"], set(), ("write", ["0"])),
    ("reads between writes", ["pay", "look", "pay", "look"], {"0"}, ("read", ["1"])),
    ("the ending waits for what stands behind it", ["to_a", "pay", "look"], set(), ("write", ["1"])),
    ("reads over the ending", ["look", "close", "look"], set(), ("read", ["0", "2"])),
    ("a read that is still open", ["look", "look"], {"0"}, ("read", ["1"])),
    ("a tool that was removed since", ["gone", "to_a"], set(), ("read", ["0"])),
]


@pytest.mark.parametrize(("names", "answered", "expected"), [pytest.param(*row[1:], id=row[0]) for row in WORK])
def test_the_next_work_of_a_stored_reply(names: list[str], answered: set[str], expected: Any) -> None:
    """What comes next is found again from the stored reply and its open calls, as a restarted process must."""
    said = reply(*names)
    work = next_work(said, {str(each["id"]) for each in said.tool_calls} - answered, KINDS)
    assert (work and (work.kind, [each["id"] for each in work.calls])) == expected


@pytest.mark.parametrize("sent", [None, "x", 7, ["n", 1]])
def test_arguments_of_another_type_are_answered(sent: Any) -> None:
    """Arguments that are no object are answered with an error, and the stored call has readable ones."""
    said = AIMessage("", id="m").model_copy(
        update={"tool_calls": [{"name": "look", "args": sent, "id": "1", "type": "tool_call"}]}
    )
    plan = plan_turn(said, HELD)
    assert (plan.work, plan.reply.tool_calls[0]["args"], plan.results[0].status) == ((), {}, "error")
    assert "Send one JSON object" in plan.results[0].text


@pytest.mark.parametrize(
    ("kind", "spent"), [("withheld", True), ("budget", True), ("bounce", True), ("declined", False), ("refused", False)]
)
def test_refusals_that_end_with_the_turn_are_known(kind: str, spent: bool) -> None:
    """A handoff that was one too many concerns its turn only; any other refusal says something that lasts."""
    assert is_spent(refusal(call("to_a", call_id="1"), "no", kind)) is spent
