"""Calls beside a handoff (faults of group A): none is lost, none is random."""

from __future__ import annotations

import time
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt

from langgraph_handoff import Agent, Handoff, create_handoff_graph, create_handoff_tool, decide, hops, privileged
from langgraph_handoff.storage import Storage
from langgraph_handoff.testing import ScriptedChatModel, call, history_faults
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


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("turn", [1, 2])
@pytest.mark.parametrize("place", [0, 1, 2])
async def test_a1_wherever_the_handoff_stands(desk: Desk, config: Any, way: str, turn: int, place: int) -> None:
    """A1: before, between or behind other calls, in the first turn or a later one, a handoff loses none and comes last."""

    def fail(amount: float) -> str:
        """Fail."""
        raise ValueError("no luck")

    beside = [call("charge", amount=1), call("fail", amount=2)]
    beside.insert(place, call("transfer_to_bob", reason="r"))
    graph = desk(
        alice={"turns": [*["not yet"] * (turn - 1), beside], "tools": [charge, fail], "handoffs": ["bob"]},
        bob={"turns": ["hello", "again"]},
    )
    for number in range(turn):
        out = await run(graph, say(f"hi {number}"), config, way)
    assert ran == [1]
    assert out["active_agent"] == "bob"
    assert [m.name for m in out["messages"] if m.type == "tool"] == [each["name"] for each in beside]
    told = model_of(graph, "bob").prompts[0][0].text
    assert "charged 1.0" in told
    assert "no luck" in told
    assert history_faults(out["messages"]) == []
    assert (await run(graph, say("more"), config, way))["messages"][-1].text == "again"


@pytest.mark.parametrize("way", WAYS)
async def test_a1_a_call_that_pauses_holds_the_handoff_back(desk: Desk, storage: Storage, config: Any, way: str) -> None:
    """A1: a tool that asks a question beside a handoff gets its answer, and the case moves after that, with the answer."""

    def ask(question: str) -> str:
        """Ask a person."""
        return f"told {interrupt(question)}"

    calls = [call("transfer_to_bob", reason="r"), call("charge", amount=1), call("ask", question="which?")]
    graph = desk(
        storage=storage,
        alice={"turns": [calls], "tools": [ask, charge], "handoffs": ["bob"]},
        bob={"turns": ["hello"]},
    )
    out = await run(graph, say("hi"), config, way)
    (paused,) = out["__interrupt__"]
    assert out["active_agent"] == "alice"
    out = await run(graph, Command(resume={paused.id: "this one"}), config, way)
    assert (out["active_agent"], ran) == ("bob", [1])
    assert "told this one" in model_of(graph, "bob").prompts[0][0].text
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


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("order", [["bob", "carol"], ["carol", "bob"], ["carol", "bob", "carol", "bob"]])
async def test_a2_the_first_of_several_handoffs_wins_always(desk: Desk, way: str, order: list[str]) -> None:
    """A2: of several handoffs in one turn the first in the message is carried out, 30 times of 30, and each has a result."""
    for number in range(30):
        graph = desk(
            alice={
                "turns": [[call(f"transfer_to_{name}", reason=str(i)) for i, name in enumerate(order)]],
                "handoffs": ["bob", "carol"],
            },
            **{name: {"turns": ["hello"] if name == order[0] else []} for name in ("bob", "carol")},
        )
        out = await run(graph, say("hi"), {"configurable": {"thread_id": str(number)}}, way)
        assert (out["active_agent"], out["handoff"].reason) == (order[0], "0")
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


def delegating(desk: Desk, workers: str, *, rule: str = "report", **more: Any) -> Any:
    """A supervisor that delegates to every worker in its first turn."""
    return desk(
        sup={
            "turns": [[call(f"transfer_to_{name}", reason=f"ask {name}") for name in workers], "done", "later"],
            "handoffs": [Handoff(to=name, on_reply=rule) for name in sorted(workers)],  # type: ignore[arg-type]
        },
        **{name: {"turns": [f"{name} says {ord(name)}"], **more.get(name, {})} for name in sorted(workers)},
        options=more.get("options"),
        storage=more.get("storage"),
    )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("workers", ["ab", "ba", "cab"])
async def test_a3_each_of_several_delegations_runs_once(desk: Desk, way: str, workers: str) -> None:
    """A3: a supervisor that delegates to several workers in one turn gets every report, in order, before it is asked again."""
    for number in range(30 if workers == "ab" else 3):
        graph = delegating(desk, workers)
        config = {"configurable": {"thread_id": str(number)}}
        out = await run(graph, say("hi"), config, way)
        assert hops(graph, config) == ["sup", *(each for name in workers for each in (name, "sup"))]
        assert [len(model_of(graph, name).prompts) for name in ("sup", *workers)] == [2, *[1] * len(workers)]
        shown = "\n".join(m.text for m in model_of(graph, "sup").prompts[1])
        assert all(f"{name} says {ord(name)}" in shown for name in workers)
        assert out["messages"][-1].text == "done"
        assert out["ownership"]["queue"] == []
        assert history_faults(out["messages"]) == []


def test_a3_lent_cases_are_answered_one_after_the_other(desk: Desk, storage: Storage, config: Any) -> None:
    """A3: with the rule `return` each worker answers the user, the lender's model is not asked, and the lender owns the case."""
    graph = delegating(desk, "ab", rule="return", storage=storage)
    out = graph.invoke(say("hi"), config)
    assert [m.text for m in out["messages"] if m.type == "ai" and m.text] == ["a says 97", "b says 98"]
    assert (out["active_agent"], len(model_of(graph, "sup").prompts)) == ("sup", 1)
    assert graph.invoke(say("more"), config)["messages"][-1].text == "done"


def test_a3_a_delegation_that_cannot_be_carried_out_is_told(desk: Desk, config: Any) -> None:
    """A3: when the second worker declines, or the budget ends with the first, the supervisor is told and answers."""
    for options, worker in (({}, {"requires": ("order",)}), ({"max_handoffs": 1}, {})):
        graph = delegating(desk, "ab", b={"turns": [], **worker}, options=options)
        out = graph.invoke(say("hi"), {"configurable": {"thread_id": str(options)}})
        (refused,) = [m for m in model_of(graph, "sup").prompts[1] if m.type == "tool"]
        assert (refused.name, refused.status) == ("transfer_to_b", "error")
        assert (out["active_agent"], out["messages"][-1].text) == ("sup", "done")
        assert history_faults(out["messages"]) == []


def test_a3_new_words_of_the_user_come_before_the_rest_of_a_delegation(desk: Desk, config: Any) -> None:
    """A3: when the user has spoken meanwhile, the supervisor decides: the second delegation waits as a follow-up in its view."""
    worker = {"turns": [call("charge", amount=1), "a says 97"], "tools": [privileged(charge)]}
    graph = delegating(desk, "ab", a=worker, b={"turns": []})
    graph.invoke(say("hi"), config)
    graph.invoke(say("only a, please"), config)
    out = decide(graph, config, "approve", by="ana")
    assert (out["active_agent"], out["messages"][-1].text) == ("sup", "done")
    shown = "\n".join(m.text for m in model_of(graph, "sup").prompts[1])
    assert "ask b" in shown
    assert "only a, please" in shown


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


def direct_price(item: str) -> str:
    """Look up a price."""
    return f"{item} costs 5"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("order", [["bob", "carol"], ["carol", "bob"], ["price", "bob", "carol"], ["carol", "price", "bob"]])
async def test_a2_a_graph_of_its_own_that_ends_on_several_handoffs(way: str, config: Any, order: list[str]) -> None:
    """A2: of several handoff calls of an agent that is a compiled graph the first is carried out, and each call has its result."""
    price = StructuredTool.from_function(direct_price, name="price", return_direct=True)
    calls = [call("price", item="x") if name == "price" else call(f"transfer_to_{name}", reason="r") for name in order]
    offered = [create_handoff_tool(agent_name=name) for name in ("bob", "carol")]
    inner = create_agent(ScriptedChatModel([calls], agent="alice"), tools=[price, *offered])
    others = [
        Agent(name=name, description=name, model=ScriptedChatModel([f"{name} here"], agent=name)) for name in ("bob", "carol")
    ]
    alice = Agent(name="alice", description="A", graph=inner, handoffs=["bob", "carol"])
    graph = create_handoff_graph([alice, *others], default_active_agent="alice").compile(checkpointer=InMemorySaver())
    out = await run(graph, say("hi"), config, way)
    first = next(name for name in order if name != "price")
    assert (out["active_agent"], out["messages"][-1].text) == (first, f"{first} here")
    assert [m.text for m in out["messages"] if m.name == "price"] == ["x costs 5"] * order.count("price")
    assert history_faults(out["messages"]) == []
