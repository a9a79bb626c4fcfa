"""Transfer: acceptance, rules of return, follow-ups, stale owners."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from langgraph.types import Command

from langgraph_handoff import Handoff, HandoffPackage, connect, decide, hops, privileged
from langgraph_handoff.storage import Storage
from langgraph_handoff.testing import assert_package, call, history_faults
from tests.conftest import Desk, model_of, run, say


class RefundPackage(HandoffPackage):
    """A refund."""

    order_id: str
    amount: Decimal


def results(out: Any) -> list[str]:
    return [m.text for m in out["messages"] if m.type == "tool"]


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("where", ["agent", "edge"])
async def test_a_package_without_a_required_fact_is_declined(desk: Desk, config: Any, way: str, where: str) -> None:
    """What a destination or an edge requires must be in the package or the case file; the refusal names what is missing."""
    edge = Handoff(to="bob", requires=("customer_id",)) if where == "edge" else "bob"
    graph = desk(
        alice={
            "turns": [call("transfer_to_bob", reason="r"), call("transfer_to_bob", known_facts={"customer_id": "C"})],
            "handoffs": [edge],
        },
        bob={"turns": ["hello"], "requires": ("customer_id",) if where == "agent" else ()},
    )
    out = await run(graph, say("hi"), config, way)
    assert "it needs customer_id" in results(out)[0]
    assert out["active_agent"] == "bob"
    assert out["ownership"]["turn_hops"] == 1
    assert [e["kind"] for e in out["events"]] == ["opened", "offered", "declined", "offered", "accepted"]


def test_a_fact_of_the_case_file_fulfils_a_requirement(desk: Desk, config: Any) -> None:
    """A fact that an earlier package brought counts for a later destination."""
    graph = desk(
        alice={"turns": [call("transfer_to_bob", known_facts={"customer_id": "C"})], "handoffs": ["bob"]},
        bob={"turns": [call("transfer_to_carol", reason="r")], "handoffs": ["carol"]},
        carol={"turns": ["hello"], "requires": ("customer_id",)},
    )
    assert graph.invoke(say("hi"), config)["active_agent"] == "carol"


@pytest.mark.parametrize(
    ("verdict", "moved", "said"),
    [(None, True, ""), ("", True, ""), (True, True, ""), ("too large", False, "too large"), (False, False, "does not take")],
)
def test_accepts_has_its_say(desk: Desk, config: Any, verdict: Any, moved: bool, said: str) -> None:
    """`accepts` declines with a reason or with False, and takes the case otherwise."""
    graph = desk(
        alice={"turns": [call("transfer_to_bob", reason="r"), "I keep it"], "handoffs": ["bob"]},
        bob={"turns": ["hello"], "accepts": lambda package: verdict},
    )
    out = graph.invoke(say("hi"), config)
    assert out["active_agent"] == ("bob" if moved else "alice")
    assert said in results(out)[0]


def test_a_receiver_declines_on_its_first_turn_only(desk: Desk, config: Any) -> None:
    """`decline_handoff` gives the case back with the reason in the sender's view; it is offered on the first turn only."""

    def look() -> str:
        """Look."""
        return "x"

    graph = desk(
        alice={"turns": [call("transfer_to_bob", reason="r"), "I answer"], "handoffs": ["bob"]},
        bob={"turns": [call("decline_handoff", reason="wrong desk")], "tools": [look]},
    )
    out = graph.invoke(say("hi"), config)
    assert (out["active_agent"], out["messages"][-1].text) == ("alice", "I answer")
    assert "wrong desk" in "\n".join(m.text for m in model_of(graph, "alice").prompts[1])
    assert "decline_handoff" in model_of(graph, "bob").offered[0]
    assert hops(graph, config) == ["alice", "bob", "alice"]
    graph = desk(
        alice={"turns": [call("transfer_to_bob", reason="r")], "handoffs": ["bob"]},
        bob={"turns": [call("look"), call("decline_handoff", reason="late"), "fine"], "tools": [look]},
    )
    out = graph.invoke(say("hi"), {"configurable": {"thread_id": "2"}})
    assert "decline_handoff" not in model_of(graph, "bob").offered[1]
    assert out["active_agent"] == "bob"


@pytest.mark.parametrize("news", ["fact", "artifact", "action", "tool", "user", "decision", "none"])
def test_what_counts_as_news_for_a_way_back(desk: Desk, config: Any, news: str) -> None:
    """A case may go straight back only with a new fact, artifact, action, tool result, decision or user's message."""

    def look() -> str:
        """Look."""
        return "x"

    back: dict[str, Any] = {
        "fact": {"known_facts": {"a": 1}},
        "artifact": {"artifacts": {"a": 1}},
        "action": {"completed_actions": ["did it"]},
    }.get(news, {})
    first: list[Any] = {"tool": [call("look")], "decision": [call("look")], "user": ["which one?"]}.get(news, [])
    graph = desk(
        alice={"turns": [call("transfer_to_bob", reason="r"), "alice again"], "handoffs": ["bob"]},
        bob={
            "turns": [*first, call("transfer_to_alice", reason="back", **back), "bob answers"],
            "handoffs": ["alice"],
            "tools": [privileged(look) if news == "decision" else look],
        },
    )
    out = graph.invoke(say("hi"), config)
    if news == "user":
        out = graph.invoke(say("this one"), config)
    if news == "decision":
        out = decide(graph, config, "approve", by="ana")
    assert out["active_agent"] == ("bob" if news == "none" else "alice")


def test_a_changed_fact_is_news(desk: Desk, config: Any) -> None:
    """The same fact with another value is something new."""
    graph = desk(
        alice={"turns": [call("transfer_to_bob", known_facts={"n": 1}), "alice"], "handoffs": ["bob"]},
        bob={"turns": [call("transfer_to_alice", known_facts={"n": 2})], "handoffs": ["alice"]},
    )
    assert graph.invoke(say("hi"), config)["active_agent"] == "alice"


def test_report_gives_the_answer_to_the_sender_who_speaks(desk: Desk, config: Any) -> None:
    """With `report` the receiver's words go to the sender as a package, and the sender answers the user."""
    graph = desk(
        alice={"turns": [call("transfer_to_bob", reason="r"), "it costs 5"], "handoffs": [Handoff(to="bob", on_reply="report")]},
        bob={"turns": ["five"]},
    )
    out = graph.invoke(say("hi"), config)
    assert (out["active_agent"], out["messages"][-1].text) == ("alice", "it costs 5")
    assert_package(graph, config, from_agent="bob", to_agent="alice", summary="five")
    assert "five" in "\n".join(m.text for m in model_of(graph, "alice").prompts[1])
    assert history_faults(model_of(graph, "alice").prompts[1]) == []


def test_nested_loans_unwind_in_order(desk: Desk, config: Any) -> None:
    """A lends to B, B lends to C: after C's answer B owns the case, after B's answer A does."""
    graph = desk(
        alice={"turns": [call("transfer_to_bob", reason="r"), "alice"], "handoffs": [Handoff(to="bob", on_reply="return")]},
        bob={"turns": [call("transfer_to_carol", reason="r"), "bob"], "handoffs": [Handoff(to="carol", on_reply="return")]},
        carol={"turns": ["carol"]},
    )
    owners = [graph.invoke(say(str(turn)), config)["active_agent"] for turn in range(3)]
    assert owners == ["bob", "alice", "alice"]


def test_nested_reports_reach_the_first_sender_in_one_turn(desk: Desk, config: Any) -> None:
    """A asks B for a report, B asks C: C reports to B, B to A, and A speaks, all in one turn."""
    graph = desk(
        alice={
            "turns": [call("transfer_to_bob", reason="r"), "alice speaks"],
            "handoffs": [Handoff(to="bob", on_reply="report")],
        },
        bob={
            "turns": [call("transfer_to_carol", reason="r"), "bob's report"],
            "handoffs": [Handoff(to="carol", on_reply="report")],
        },
        carol={"turns": ["carol's report"]},
    )
    out = graph.invoke(say("hi"), config)
    assert (out["messages"][-1].text, out["active_agent"], out["ownership"]["stack"]) == ("alice speaks", "alice", [])


def test_a_lent_case_can_be_given_back_by_a_call(desk: Desk, config: Any) -> None:
    """The borrower may give the case back before answering, with what it found out."""
    graph = desk(
        alice={"turns": [call("transfer_to_bob", reason="r"), "done"], "handoffs": [Handoff(to="bob", on_reply="return")]},
        bob={"turns": [call("transfer_back_to_alice", summary="found it", known_facts={"n": 1})]},
    )
    out = graph.invoke(say("hi"), config)
    assert (out["active_agent"], out["messages"][-1].text, out["case"]["facts"]) == ("alice", "done", {"n": 1})


@pytest.mark.parametrize(("rule", "last"), [("return", "my part is done"), ("report", "alice sums up")])
def test_a_borrower_that_closes_gives_the_case_back(desk: Desk, config: Any, rule: Any, last: str) -> None:
    """`close_case` in a lent case is the borrower's answer: the lender has the case again, and it is not closed."""
    graph = desk(
        alice={"turns": [call("transfer_to_bob", reason="r"), "alice sums up"], "handoffs": [Handoff(to="bob", on_reply=rule)]},
        bob={"turns": [call("close_case", message="my part is done")]},
    )
    out = graph.invoke(say("hi"), config)
    assert (out["active_agent"], out["messages"][-1].text, out["ownership"]["closed"]) == ("alice", last, False)
    assert history_faults(out["messages"]) == []
    assert_package(graph, config, from_agent="bob", to_agent="alice", summary="my part is done")


@pytest.mark.parametrize("rule", ["keep", "report"])
def test_very_long_words_do_not_stop_a_handoff(desk: Desk, config: Any, rule: Any) -> None:
    """A user's message or a report that is larger than a package may be does not keep the case from moving."""
    long = "word " * 80_000
    graph = desk(
        alice={"turns": [call("transfer_to_bob", reason="r"), "alice"], "handoffs": [Handoff(to="bob", on_reply=rule)]},
        bob={"turns": [long]},
    )
    out = graph.invoke(say(long), config)
    assert out["active_agent"] == ("bob" if rule == "keep" else "alice")
    assert model_of(graph, "bob").prompts[0][-1].text == long


def test_each_edge_has_its_typed_package(desk: Desk, storage: Storage, config: Any) -> None:
    """A destination's package class is the tool's schema, and comes back as that class after storage."""
    graph = desk(
        storage=storage,
        alice={
            "turns": [call("transfer_to_bob", reason="r"), call("transfer_to_bob", order_id="A", amount="2.50")],
            "handoffs": ["bob"],
        },
        bob={"turns": ["hello"], "package": RefundPackage},
    )
    out = graph.invoke(say("hi"), config)
    assert "order_id: Field required" in results(out)[0]
    package = graph.get_state(config).values["handoff"]
    assert isinstance(package, RefundPackage)
    assert package.amount == Decimal("2.50")


def test_a_handoff_that_is_not_enabled_is_not_offered(desk: Desk, config: Any) -> None:
    """`is_enabled` hides the tool; a call all the same is refused and moves nothing."""
    edge = Handoff(to="bob", is_enabled=lambda state: len(state["messages"]) > 4)
    graph = desk(
        alice={"turns": [call("transfer_to_bob", reason="r"), "no", call("transfer_to_bob", reason="r")], "handoffs": [edge]},
        bob={"turns": ["hello"]},
    )
    assert graph.invoke(say("hi"), config)["active_agent"] == "alice"
    assert "transfer_to_bob" not in model_of(graph, "alice").offered[0]
    assert graph.invoke(say("again"), config)["active_agent"] == "bob"


def test_an_edge_can_fix_the_requested_action(desk: Desk, config: Any) -> None:
    """An edge limits what a sender may ask of the receiver."""
    one = Handoff(to="bob", actions=("execute",))
    graph = desk(alice={"turns": [call("transfer_to_bob", reason="r")], "handoffs": [one]}, bob={"turns": ["hello"]})
    graph.invoke(say("hi"), config)
    assert_package(graph, config, requested_action="execute")


def test_the_user_is_told_what_the_edge_announces(desk: Desk, config: Any) -> None:
    """`announce` is said to the user in the sender's name when the case moves, and not when it does not."""
    edge = Handoff(to="bob", announce=lambda package: f"One moment, {package.to_agent} helps.")
    graph = desk(
        alice={"turns": [call("transfer_to_bob", reason=5), call("transfer_to_bob", reason="r")], "handoffs": [edge]},
        bob={"turns": ["hello"]},
    )
    out = graph.invoke(say("hi"), config)
    assert [(m.name, m.text) for m in out["messages"] if m.type == "ai" and m.text] == [
        ("alice", "One moment, bob helps."),
        ("bob", "hello"),
    ]


def test_a_stale_owner_falls_back(desk: Desk, tmp_path: Any, config: Any) -> None:
    """An owner that was renamed is found by its alias, one that is gone falls back to the default agent, with an event."""
    file = str(tmp_path / "cases.db")
    with connect(file) as storage:
        graph = desk(
            storage=storage, alice={"turns": [call("transfer_to_bob", reason="r")], "handoffs": ["bob"]}, bob={"turns": ["hello"]}
        )
        graph.invoke(say("hi"), config)
    with connect(file) as storage:
        renamed = desk(
            storage=storage, alice={"turns": []}, robert={"turns": ["robert here"]}, options={"aliases": {"bob": "robert"}}
        )
        assert renamed.invoke(say("more"), config)["messages"][-1].name == "robert"
    with connect(file) as storage:
        gone = desk(storage=storage, alice={"turns": ["alice here"]})
        out = gone.invoke(say("more"), config)
    assert out["messages"][-1].name == "alice"
    assert [e["kind"] for e in out["events"]].count("stale_owner") == 2


def test_a_closed_case_is_opened_again_by_the_entry_agent(desk: Desk, config: Any) -> None:
    """After `close_case` the user has last words to read, the trail ends with done, and a new message starts at the entry."""
    graph = desk(
        alice={"turns": [call("transfer_to_bob", reason="r"), "alice again"], "handoffs": ["bob"]},
        bob={"turns": [call("close_case", message="all done")]},
    )
    out = graph.invoke(say("hi"), config)
    assert out["messages"][-1].text == "all done"
    assert hops(graph, config) == ["alice", "bob", "done"]
    assert graph.invoke(say("one more"), config)["messages"][-1].text == "alice again"
    assert hops(graph, config) == ["alice", "bob", "done", "alice"]


def test_one_update_holds_owner_and_package_together(desk: Desk, tmp_path: Any, config: Any) -> None:
    """No stored state of a moved case has an owner without the package that it was given."""
    with connect(str(tmp_path / "cases.db")) as storage:
        graph = desk(
            storage=storage,
            alice={"turns": [call("transfer_to_bob", reason="r")], "handoffs": ["bob"]},
            bob={"turns": [call("transfer_to_carol", reason="r")], "handoffs": ["carol"]},
            carol={"turns": ["hello"]},
        )
        graph.invoke(say("hi"), config)
        for snapshot in graph.get_state_history(config):
            values = snapshot.values
            if values.get("ownership", {}).get("hop"):
                assert values["handoff"].to_agent == values["active_agent"]
                assert values["handoff"].epoch == values["ownership"]["epoch"]


def test_a_follow_up_is_opened_when_the_first_part_is_closed(desk: Desk, config: Any) -> None:
    """A second destination of one turn waits, and has the case with its own package once the first part is closed."""
    graph = desk(
        alice={
            "turns": [[call("transfer_to_bob", reason="first"), call("transfer_to_carol", reason="second")]],
            "handoffs": ["bob", "carol"],
        },
        bob={"turns": [call("close_case", message="my part is done")]},
        carol={"turns": ["hello"]},
    )
    out = graph.invoke(say("hi"), config)
    assert (out["active_agent"], out["messages"][-1].text, out["ownership"]["closed"]) == ("carol", "hello", False)
    assert "my part is done" in [m.text for m in out["messages"]]
    assert_package(graph, config, to_agent="carol", reason="second")
    assert hops(graph, config) == ["alice", "bob", "carol"]


@pytest.mark.parametrize("why", ["declined", "invalid", "approval"])
@pytest.mark.parametrize("way", ["sync", "async"])
async def test_a_follow_up_that_cannot_be_opened_does_not_keep_the_case_open(desk: Desk, config: Any, why: str, way: str) -> None:
    """A follow-up that its destination declines, has no valid package, or needs an approval is told once, and the case can be closed."""
    edge = Handoff(to="carol", approval=why == "approval")
    second = call("transfer_to_carol", **({"reason": 5} if why == "invalid" else {"reason": "second"}))
    graph = desk(
        alice={"turns": [[call("transfer_to_bob", reason="first"), second]], "handoffs": ["bob", edge]},
        bob={"turns": [call("close_case", message="done"), call("close_case", message="really done")]},
        carol={"turns": [], "requires": ("order",) if why == "declined" else ()},
    )
    out = await run(graph, say("hi"), config, way)
    assert (out["messages"][-1].text, out["ownership"]["closed"], out["ownership"]["queue"]) == ("really done", True, [])
    assert "carol" in [m.text for m in out["messages"] if m.name == "close_case"][0]
    assert "__interrupt__" not in out
    assert hops(graph, config) == ["alice", "bob", "done"]
    assert history_faults(out["messages"]) == []


ran: list[str] = []


def pay(order: str) -> str:
    """Pay an order."""
    ran.append(order)
    return "paid"


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("first", ["the answer", "new words"])
@pytest.mark.parametrize(("fate", "owner"), [("renamed", "robert"), ("gone", "alice")])
async def test_an_owner_that_goes_while_its_request_is_open(
    desk: Desk, tmp_path: Any, config: Any, way: str, first: str, fate: str, owner: str
) -> None:
    """A request of an agent that was renamed meanwhile is carried out once under its new name; one of an agent that is gone runs nothing,
    is answered, and the default agent goes on.
    """
    ran.clear()
    file = str(tmp_path / "cases.db")
    with connect(file) as storage:
        before = desk(
            storage=storage,
            alice={"turns": [call("transfer_to_bob", reason="r")], "handoffs": ["bob"]},
            bob={"turns": [call("pay", order="A")], "tools": [privileged(pay)]},
        )
        before.invoke(say("hi"), config)
        decision = {"decisions": [{"type": "approve", "by": "ana"}]}
    with connect(file) as storage:
        kept: dict[str, Any] = {"robert": {"turns": ["robert here"], "tools": [privileged(pay)]}} if fate == "renamed" else {}
        graph = desk(
            storage=storage,
            alice={"turns": ["alice here"], "tools": [] if kept else [privileged(pay)]},
            **kept,
            options={"aliases": {"bob": "robert"}} if kept else {},
        )
        if first == "new words":
            out = await run(graph, say("hello?"), config, way)
            if fate == "renamed":
                assert out["__interrupt__"][0].value["handoff"]["agent"] == "robert"
        if graph.get_state(config).interrupts:
            out = await run(graph, Command(resume=decision), config, way)
    assert ran == (["A"] if fate == "renamed" else [])
    assert out["messages"][-1].text == f"{owner} here"
    assert history_faults(out["messages"]) == []
    if fate == "gone":
        assert "bob is not there any more" in [m.text for m in out["messages"] if m.name == "pay"][0]
        assert out["active_agent"] == "alice"


@pytest.mark.parametrize("fate", ["renamed", "gone", "without its tools"])
def test_an_agent_that_goes_while_it_reads(desk: Desk, tmp_path: Any, config: Any, fate: str) -> None:
    """A run that was stopped before a read goes on after the agent was renamed, removed or lost its tools: each call has one result."""

    def look(what: str) -> str:
        """Look."""
        return f"saw {what}"

    file = str(tmp_path / "cases.db")
    with connect(file) as storage:
        before = desk(
            storage=storage,
            alice={"turns": [call("transfer_to_bob", reason="r")], "handoffs": ["bob"]},
            bob={"turns": [[call("look", what="a"), call("look", what="b")]], "tools": [look]},
        )
        before.invoke(say("hi"), config, interrupt_before=["tools"])
    with connect(file) as storage:
        name = "robert" if fate == "renamed" else "bob"
        tools: list[Any] = [] if fate == "without its tools" else [look]
        kept: dict[str, Any] = {} if fate == "gone" else {name: {"turns": [f"{name} here"], "tools": tools}}
        graph = desk(
            storage=storage,
            alice={"turns": ["alice here"], "tools": [look]},
            **kept,
            options={"aliases": {"bob": "robert"}} if fate == "renamed" else {},
        )
        out = graph.invoke(None, config)
    assert out["messages"][-1].text == f"{'alice' if fate == 'gone' else name} here"
    assert [m.text.startswith("saw") for m in out["messages"] if m.name == "look"] == [fate == "renamed"] * 2
    assert history_faults(out["messages"]) == []
