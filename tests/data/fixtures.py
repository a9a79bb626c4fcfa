"""Small cases and turns of the same shapes as the recorded ones, written for these tests."""

from __future__ import annotations

from typing import Any


def _step(agent: str, tool: str, *, write: bool = False, requestor: str = "assistant", **args: Any) -> dict[str, Any]:
    return {"agent": agent, "tool": tool, "args": args, "is_write": write, "requestor": requestor, "result": f"{tool} ok"}


CASES: list[dict[str, Any]] = [
    {
        "id": "own:1",
        "steps": [
            _step("triage", "find", name="Kim"),
            _step("orders", "cancel", write=True, order="1"),
            _step("orders", "cancel", write=True, order="2"),
        ],
        "handoffs": [{"before_step": 1, "from": "triage", "to": "orders"}],
    },
    {
        "id": "own:2",
        "steps": [
            _step("triage", "find", phone="1"),
            _step("customer", "reboot", requestor="user", write=True),
            _step("tech", "status", line="1"),
            _step("tech", "enable_roaming", write=True, line="1"),
            _step("customer", "reboot", requestor="user", write=True),
            _step("billing", "pay", write=True, bill="7"),
        ],
        "handoffs": [{"before_step": 2, "from": "triage", "to": "tech"}, {"before_step": 5, "from": "tech", "to": "billing"}],
    },
    {
        "id": "own:3",
        "steps": [
            _step("triage", "find", name="Ola"),
            _step("orders", "details", order="1"),
            _step("triage", "calculate", expression="1 + 1"),
            _step("human", "transfer_to_human_agents", write=True, summary="too hard"),
        ],
        "handoffs": [
            {"before_step": 1, "from": "triage", "to": "orders"},
            {"before_step": 2, "from": "orders", "to": "triage"},
            {"before_step": 3, "from": "triage", "to": "human"},
        ],
    },
    {
        "id": "own:booked-cancelled-and-booked-again",
        "steps": [
            _step("bookings", "book", write=True, flight="A1", day="May 2"),
            _step("bookings", "cancel", write=True, flight="A1"),
            _step("bookings", "book", write=True, flight="A1", day="May 2"),
        ],
        "handoffs": [],
    },
    {
        "id": "own:the-same-read-by-two-agents",
        "steps": [
            _step("triage", "details", order="1"),
            _step("orders", "details", order="1"),
            _step("orders", "cancel", write=True, order="1"),
            _step("orders", "details", order="1"),
        ],
        "handoffs": [{"before_step": 1, "from": "triage", "to": "orders"}],
    },
    {
        "id": "own:four-specialists",
        "steps": [
            _step("triage", "find", name="Ida"),
            _step("cards", "freeze", write=True, card="1"),
            _step("disputes", "open_dispute", write=True, charge="9", amount=12.5),
            _step("disputes", "lookup", charge="9"),
            _step("accounts", "credit", write=True, amount=12.5),
            _step("customer", "confirm", requestor="user", write=True),
            _step("cards", "order_card", write=True, card="2"),
        ],
        "handoffs": [
            {"before_step": 1, "from": "triage", "to": "cards"},
            {"before_step": 2, "from": "cards", "to": "disputes"},
            {"before_step": 4, "from": "disputes", "to": "accounts"},
            {"before_step": 6, "from": "accounts", "to": "cards"},
        ],
    },
]


def _turn(
    name: str, *calls: tuple[str, str | None, str | None], content: str = "", roles: dict[str, str], **more: Any
) -> dict[str, Any]:
    made = [{"name": tool, "args_raw": raw, "id": call_id} for tool, raw, call_id in calls]
    return {"id": name, "roles": roles, "message": {"content": content, "tool_calls": made}, **more}


R, W, H = "read", "write", "handoff"
TURNS: list[dict[str, Any]] = [
    _turn("two-handoffs", ("to_a", '{"reason": "x"}', "1"), ("to_b", '{"reason": "y"}', "2"), roles={"to_a": H, "to_b": H}),
    _turn("read-and-handoff", ("to_a", "{}", "1"), ("look", '{"q": 1}', "2"), roles={"to_a": H, "look": R}),
    _turn("write-and-handoff", ("pay", '{"q": 1}', "1"), ("to_a", "{}", "2"), roles={"to_a": H, "pay": W}),
    _turn("same-call-twice", ("look", '{"q": 1}', "1"), ("look", '{"q": 1}', "2"), roles={"look": R}),
    _turn("same-write-twice", ("pay", '{"q": 1}', "1"), ("pay", '{"q": 1}', "1"), roles={"pay": W}),
    _turn("no-ids", ("look", '{"q": 1}', None), ("look", '{"q": 2}', None), roles={"look": R}),
    _turn("empty-ids", ("look", '{"q": 1}', ""), ("look", '{"q": 2}', ""), roles={"look": R}),
    _turn("truncated", ("look", '{"q": "abc', "1"), roles={"look": R}),
    _turn("not-an-object", ("look", "[1, 2]", "1"), roles={"look": R}),
    _turn("null", ("look", "null", "1"), roles={"look": R}),
    _turn("source-code", ("pay", "import os\nos.remove('x')", None), roles={"pay": W}),
    _turn("foreign", ("delete_everything", "{}", "1"), roles={"look": R}),
    _turn("agent-as-tool", ("expert_0", "{}", "1"), roles={"to_a": H}),
    _turn("diacritics", ("transfer_to_müller", "{}", "1"), roles={"to_a": H}),
    _turn("empty", roles={}),
    _turn("words-that-look-like-a-call", content='{"name": "pay", "arguments": {}}', roles={"pay": W}),
    _turn("words-and-write", ("pay", '{"q": 1}', "1"), content="I pay now", roles={"pay": W}),
    _turn("handoff-with-injected-argument", ("to_a", '{"tool_call_id": "x", "state": {}}', "1"), roles={"to_a": H}),
]
