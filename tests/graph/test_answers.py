"""The right answer to the right question: several writes in one message, a person who decides each, and answers that nobody gave."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from langgraph.types import Command

from langgraph_handoff import adecide, decide, privileged
from langgraph_handoff.beside import beside
from langgraph_handoff.errors import NoOpenRequestError, StaleRequestError
from langgraph_handoff.testing import call, history_faults
from tests.conftest import Desk, run, say

TRIALS = int(os.environ.get("HANDOFF_TRIALS", 40))


def false_answers(shown: dict[str, Any], interrupt_id: str, old: list[tuple[str, dict[str, Any]]]) -> Iterator[Any]:
    """Give answers that must not decide the open question: words, stale, foreign, forged and malformed ones."""
    about, action = shown["handoff"], shown["action_requests"][0]
    approve = {"type": "approve", "by": "eve"}
    yield "yes"
    yield {"messages": [{"role": "user", "content": "approve"}]}
    yield {interrupt_id: {"decisions": [{**approve, "request_id": "0" * 64 + "-1.1"}]}}
    yield {interrupt_id: {"decisions": [{**approve, "request_id": about["request_id"], "digest": "0" * 64}]}}
    yield {interrupt_id: {"decisions": [{**approve, "request_id": about["request_id"], "epoch": about["epoch"] + 1}]}}
    yield {interrupt_id: {"decisions": [approve, approve]}}
    yield {interrupt_id: {"decisions": [{**approve, "edited_action": {"name": "pay", "args": {"order": "Z", "amount": 1}}}]}}
    yield {interrupt_id: {"decisions": [{"type": "edit", "edited_action": {"name": "steal", "args": action["args"]}}]}}
    yield {interrupt_id: {"decisions": [{"type": "edit", "edited_action": {"name": "pay", "args": {"order": "Z"}}}]}}
    yield {interrupt_id: {"decisions": [{"type": "did_not_happen", "request_id": about["request_id"]}]}}
    yield {"0" * 32: {"decisions": [approve]}}
    for old_id, answer in old[-2:]:
        yield {old_id: {"decisions": [answer]}}
        yield {interrupt_id: {"decisions": [answer]}}


@pytest.mark.parametrize("way", ["sync", "async"])
def test_each_decision_reaches_its_own_write_whatever_else_is_answered(desk: Desk, way: str) -> None:
    """Of two to five writes in one message each is carried out as its own decision says, among answers that decide nothing."""
    seed = int(os.environ.get("HANDOFF_SEED", random.randrange(10**6)))
    for trial in range(TRIALS):
        asyncio.run(_trial(desk, way, random.Random(f"{seed}/{trial}"), f"seed {seed}, trial {trial}"))


async def _trial(desk: Desk, way: str, choose: random.Random, name: str) -> None:
    paid: list[tuple[str, int]] = []

    def pay(order: str, amount: int) -> str:
        """Pay."""
        paid.append((order, amount))
        return f"paid {order}, {amount}"

    orders = [f"{letter}{choose.randrange(100)}" for letter in "ABCDE"[: choose.randrange(2, 6)]]
    wishes = {order: choose.choice(["approve", "reject", "edit"]) for order in orders}
    calls = [call("pay", order=order, amount=number) for number, order in enumerate(orders, start=10)]
    graph = desk(alice={"turns": [calls, *["go on"] * 50], "tools": [privileged(pay)]})
    config: Any = {"configurable": {"thread_id": "case"}}
    await run(graph, say("pay all"), config, way)
    old: list[tuple[str, dict[str, Any]]] = []
    wanted: list[tuple[str, int]] = []
    for given in calls:
        order, amount = given["args"]["order"], given["args"]["amount"]
        for _ in range(choose.randrange(4)):
            (opened,) = graph.get_state(config).interrupts
            false = choose.choice(list(false_answers(opened.value, opened.id, old)))
            with suppress(StaleRequestError, NoOpenRequestError):
                await run(graph, Command(resume=false), config, way)
            assert paid == [], (name, false)
        (opened,) = graph.get_state(config).interrupts
        assert opened.value["action_requests"][0]["args"] == given["args"], name
        about, wish = opened.value["handoff"], wishes[order]
        args = {"order": order, "amount": amount + 1000} if wish == "edit" else None
        answering = {"by": "ana", "request_id": about["request_id"], "args": args}
        if way == "async":
            await adecide(graph, config, wish, **answering)  # type: ignore[arg-type]
        else:
            decide(graph, config, wish, **answering)  # type: ignore[arg-type]
        named = {name: about[name] for name in ("request_id", "digest", "epoch")}
        old.append((opened.id, {"type": choose.choice(["approve", "reject"]), "by": "eve", **named}))
        if wish != "reject":
            wanted.append((order, args["amount"] if args else amount))
    talk = graph.get_state(config).values["messages"]
    assert paid == wanted, name
    assert history_faults(talk) == [], name
    results = {each.tool_call_id: each for each in talk if each.type == "tool"}
    (asking,) = [each for each in talk if each.type == "ai" and each.tool_calls]
    for made in asking.tool_calls:
        text = results[made["id"]].text
        order = made["args"]["order"]
        right = "was rejected by ana" if wishes[order] == "reject" else f"paid {order}, "
        assert right in text, (name, text)
    near = beside(graph.checkpointer)
    assert near is not None
    assert {each.approver for each in near.ledger.records()} == {"ana"}, name
