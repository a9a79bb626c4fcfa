"""Calls beside a handoff (faults of group A): none is lost, none is random."""

from __future__ import annotations

import time
from typing import Any

import pytest

from langgraph_handoff import privileged
from langgraph_handoff.storage import Storage
from langgraph_handoff.testing import call, history_faults
from tests.conftest import Desk, model_of, run, say

WAYS = ("sync", "async")


def charge(amount: float) -> str:
    """Charge an amount."""
    ran.append(amount)
    return f"charged {amount}"


ran: list[Any] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ran.clear()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("first", ["read", "handoff"])
async def test_a1_a_call_beside_a_handoff_keeps_its_result(
    desk: Desk, storage: Storage, config: Any, way: str, first: str
) -> None:
    """A1: the call runs once, its result stands in the history before the receiver is asked, and the next turn works."""
    calls = [call("charge", amount=40), call("transfer_to_bob", reason="r")]
    turns = [calls if first == "read" else calls[::-1]]
    graph = desk(
        storage=storage, alice={"turns": turns, "tools": [charge], "handoffs": ["bob"]}, bob={"turns": ["hello", "again"]}
    )
    out = await run(graph, say("hi"), config, way)
    assert ran == [40]
    kinds = [(m.type, m.name) for m in out["messages"]]
    assert kinds.index(("tool", "charge")) < kinds.index(("ai", "bob"))
    assert history_faults(out["messages"]) == []
    out = await run(graph, say("and now?"), config, way)
    assert out["messages"][-1].text == "again"
    assert history_faults(out["messages"]) == []


@pytest.mark.parametrize("count", [2, 5])
async def test_a1_many_calls_beside_a_handoff(desk: Desk, config: Any, count: int) -> None:
    """A1: any number of calls beside a handoff run once each and in the history's order of the calls."""
    calls = [call("charge", amount=i) for i in range(count)]
    graph = desk(
        alice={"turns": [[*calls, call("transfer_to_bob", reason="r")]], "tools": [charge], "handoffs": ["bob"]},
        bob={"turns": ["hello"]},
    )
    out = await graph.ainvoke(say("hi"), config)
    assert sorted(ran) == list(range(count))
    assert [m.text for m in out["messages"] if m.name == "charge"] == [f"charged {float(i)}" for i in range(count)]


def test_a2_the_first_of_two_handoffs_wins_always(desk: Desk) -> None:
    """A2: of two handoffs in one turn the first in the message is carried out, 30 times of 30, and both have a result."""
    for number in range(30):
        graph = desk(
            alice={
                "turns": [[call("transfer_to_bob", reason="r"), call("transfer_to_carol", reason="later")]],
                "handoffs": ["bob", "carol"],
            },
            bob={"turns": ["hello"]},
            carol={"turns": []},
        )
        out = graph.invoke(say("hi"), {"configurable": {"thread_id": str(number)}})
        assert out["active_agent"] == "bob"
        assert history_faults(out["messages"]) == []


def test_a2_the_second_destination_is_queued_and_told(desk: Desk, config: Any) -> None:
    """A2: the second destination waits as a follow-up that the owner sees, and opens when the owner closes its part."""
    graph = desk(
        alice={
            "turns": [[call("transfer_to_bob", reason="r"), call("transfer_to_carol", reason="the other thing")]],
            "handoffs": ["bob", "carol"],
        },
        bob={"turns": [call("close_case", message="my part is done")]},
        carol={"turns": ["the other thing is done"]},
    )
    out = graph.invoke(say("hi"), config)
    assert "the other thing" in model_of(graph, "bob").prompts[0][0].text
    assert out["active_agent"] == "carol"
    assert [m.text for m in out["messages"] if m.type == "ai" and m.text] == ["my part is done", "the other thing is done"]
    assert history_faults(out["messages"]) == []


def test_a3_both_results_of_two_reads_come_back(desk: Desk, config: Any) -> None:
    """A3: several calls in one turn all run and all come back to the owner's next prompt."""
    graph = desk(alice={"turns": [[call("charge", amount=1), call("charge", amount=2)], "done"], "tools": [charge]})
    graph.invoke(say("hi"), config)
    shown = [m.text for m in model_of(graph, "alice").prompts[1] if m.type == "tool"]
    assert sorted(ran) == [1, 2]
    assert shown == ["charged 1.0", "charged 2.0"]


@pytest.mark.parametrize("way", WAYS)
async def test_a5_a_slow_call_ends_before_the_receiver_is_asked(desk: Desk, config: Any, way: str) -> None:
    """A5: a slow call beside a handoff is done, and told, before the receiver's model is asked."""

    def slow_refund(order: str) -> str:
        """Refund an order."""
        time.sleep(0.1)
        ran.append(order)
        return f"refunded {order} slowly"

    def bob_turn(messages: list[Any]) -> str:
        assert ran == ["A-1"]
        return "hello"

    graph = desk(
        alice={
            "turns": [[call("slow_refund", order="A-1"), call("transfer_to_bob", reason="r")]],
            "tools": [slow_refund],
            "handoffs": ["bob"],
        },
        bob={"turns": [bob_turn]},
    )
    await run(graph, say("hi"), config, way)
    assert "refunded A-1 slowly" in "\n".join(m.text for m in model_of(graph, "bob").prompts[0])


def test_a_write_beside_a_handoff_finishes_first(desk: Desk, storage: Storage, config: Any) -> None:
    """A privileged write beside a handoff is asked, carried out and told before the case moves."""
    from langgraph_handoff import decide

    graph = desk(
        storage=storage,
        alice={
            "turns": [[call("transfer_to_bob", reason="r"), call("charge", amount=40)]],
            "tools": [privileged(charge)],
            "handoffs": ["bob"],
        },
        bob={"turns": ["hello"]},
    )
    out = graph.invoke(say("hi"), config)
    assert out["active_agent"] == "alice"
    assert ran == []
    out = decide(graph, config, "approve", by="ana")
    assert ran == [40]
    assert out["active_agent"] == "bob"
    assert "charged 40.0" in model_of(graph, "bob").prompts[0][0].text
    assert history_faults(out["messages"]) == []


def test_a7_the_refused_destination_is_neutral_and_still_offered(desk: Desk, config: Any) -> None:
    """A7: the record of a handoff that was not carried out is neutral, and its tool is offered again."""
    graph = desk(
        alice={
            "turns": [
                [call("transfer_to_bob", reason="r"), call("transfer_to_carol", reason="r")],
                call("transfer_to_carol", reason="r"),
            ],
            "handoffs": ["bob", "carol"],
        },
        bob={"turns": [call("transfer_to_alice", reason="back", known_facts={"x": 1})], "handoffs": ["alice"]},
        carol={"turns": ["hello"]},
    )
    out = graph.invoke(say("hi"), config)
    texts = [m.text for m in out["messages"] if m.name == "transfer_to_carol"]
    assert texts[0] == "Not carried out in this turn; still available."
    assert out["active_agent"] == "carol"
    assert "transfer_to_carol" in model_of(graph, "alice").offered[1]
