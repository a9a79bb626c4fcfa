"""What becomes of a gated call when things go wrong behind the decision."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.types import Command
from pydantic import BaseModel, field_validator

from langgraph_handoff import Handoff, adecide, decide, hops, privileged
from langgraph_handoff.ledger import MemoryLedger
from langgraph_handoff.testing import call, history_faults
from tests.conftest import Desk, model_of, run, say

ran: list[Any] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ran.clear()


def pay(order: str, amount: float = 1.0) -> str:
    """Pay an order."""
    ran.append((order, amount))
    if len(ran) == 1:
        raise TimeoutError("gateway")
    return f"paid {amount}"


def sure(order: str, amount: float = 1.0) -> str:
    """Pay an order without fail."""
    ran.append((order, amount))
    return f"paid {amount}"


def request(graph: Any, config: Any) -> Any:
    (asked,) = graph.get_state(config).interrupts
    return asked.value


def tool_texts(graph: Any, config: Any) -> list[str]:
    return [m.text for m in graph.get_state(config).values["messages"] if m.type == "tool"]


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("identity", [None, ("order",)])
@pytest.mark.parametrize(("cleared", "runs"), [("done", 1), ("did_not_happen", 2), ("abandon", 1)])
async def test_an_edited_write_of_unknown_outcome_is_cleared_up_as_edited(
    desk: Desk, config: Any, identity: Any, cleared: Any, runs: int, way: str
) -> None:
    """After an edit, "it happened" gives its result, "it did not" runs the edited arguments, and giving up says so."""
    graph = desk(alice={"turns": [call("pay", order="A", amount=9.0), "told"], "tools": [privileged(pay, identity=identity)]})
    graph.ledger = ledger = MemoryLedger()
    await run(graph, say("hi"), config, way)
    args = {"order": "A", "amount": 7.0}
    await adecide(graph, config, "edit", by="ana", args=args) if way == "async" else decide(
        graph, config, "edit", by="ana", args=args
    )
    shown = request(graph, config)
    assert (shown["handoff"]["kind"], shown["action_requests"][0]["args"]) == ("unknown", args)
    decide(graph, config, cleared, by="ben", request_id=shown["handoff"]["request_id"])
    assert ran == [("A", 7.0)] * runs
    (text,) = tool_texts(graph, config)
    assert {"done": "ben confirmed", "did_not_happen": "paid 7.0", "abandon": "unknown"}[cleared] in text
    assert [r.state for r in ledger.records() if r.state != "denied"] == ["abandoned" if cleared == "abandon" else "done"]
    assert graph.get_state(config).values["messages"][-1].text == "told"


def test_the_question_about_an_outcome_is_another_question(desk: Desk, config: Any) -> None:
    """An answer to "may it be done?" is not taken for one to "did it happen?", and both are on record."""
    from langgraph_handoff.errors import StaleRequestError

    graph = desk(alice={"turns": [call("pay", order="A"), "told"], "tools": [privileged(pay)]})
    graph.invoke(say("hi"), config)
    first = request(graph, config)["handoff"]["request_id"]
    decide(graph, config, "approve", by="ana", request_id=first)
    with pytest.raises(StaleRequestError):
        decide(graph, config, "approve", by="ana", request_id=first)
    decide(graph, config, "did_not_happen", by="ben")
    told = [e["detail"]["by"] for e in graph.get_state(config).values["events"] if e["kind"] == "decided"]
    assert told == ["ana", "ben"]
    assert hops(graph, config) == ["alice", "human", "alice", "human", "alice"]


@pytest.mark.parametrize("number", [float("inf"), float("nan"), -float("inf")])
def test_a_number_that_is_not_finite_is_the_model_s_mistake(desk: Desk, config: Any, number: float) -> None:
    """NaN and infinity in a gated call are an error result; nobody is asked, and the thread goes on."""
    graph = desk(alice={"turns": [call("sure", order="A", amount=number), "sorry", "more"], "tools": [privileged(sure)]})
    out = graph.invoke(say("hi"), config)
    assert out["messages"][-1].text == "sorry"
    assert "finite" in tool_texts(graph, config)[0]
    assert graph.invoke(say("go on"), config)["messages"][-1].text == "more"


def test_a_number_that_is_not_finite_in_an_edit_asks_again(desk: Desk, config: Any) -> None:
    """A person's `1e999` is no argument: the request stays open and says why."""
    graph = desk(alice={"turns": [call("sure", order="A"), "done"], "tools": [privileged(sure)]})
    graph.invoke(say("hi"), config)
    decide(graph, config, "edit", by="ana", args={"order": "A", "amount": "1e999"})
    assert "not valid" in request(graph, config)["handoff"]["note"]
    decide(graph, config, "approve", by="ana")
    assert ran == [("A", 1.0)]


@pytest.mark.parametrize("gated", [True, False])
def test_a_number_that_is_not_finite_in_a_package_is_an_error_result(desk: Desk, config: Any, gated: bool) -> None:
    """A package with NaN is refused to its sender, gated or not, and the sender keeps the case."""
    graph = desk(
        alice={
            "turns": [call("transfer_to_bob", known_facts={"x": float("nan")}), "I keep it"],
            "handoffs": [Handoff(to="bob", approval=gated)],
        },
        bob={"turns": []},
    )
    out = graph.invoke(say("hi"), config)
    assert (out["active_agent"], out["messages"][-1].text) == ("alice", "I keep it")
    assert "finite" in tool_texts(graph, config)[0]


class Refund(BaseModel):
    """Arguments with the author's own rule."""

    amount: float
    currency: str = "EUR"

    @field_validator("currency")
    @classmethod
    def euros(cls, value: str) -> str:
        """Take euros only."""
        if value != "EUR":
            raise ValueError("only EUR")
        return value


def test_the_tool_author_s_validators_speak_before_anybody_is_asked(desk: Desk, config: Any) -> None:
    """A validator of the tool's own schema refuses a call before the request, and an edit after it; nothing becomes unknown."""
    from langchain_core.tools import StructuredTool

    def refund(amount: float, currency: str = "EUR") -> str:
        """Refund."""
        ran.append((amount, currency))
        return "refunded"

    made = StructuredTool.from_function(refund, args_schema=Refund)
    graph = desk(
        alice={"turns": [call("refund", amount=3, currency="USD"), call("refund", amount=3), "done"], "tools": [privileged(made)]}
    )
    graph.invoke(say("hi"), config)
    assert "only EUR" in tool_texts(graph, config)[0]
    decide(graph, config, "edit", by="ana", args={"amount": 2, "currency": "USD"})
    assert "only EUR" in request(graph, config)["handoff"]["note"]
    decide(graph, config, "approve", by="ana")
    assert ran == [(3.0, "EUR")]


class Dying(MemoryLedger):
    """Ends the run right behind a move, as a kill would."""

    def __init__(self, event: str) -> None:
        super().__init__()
        self.event = event

    def move(self, record: Any, event: str, **changes: Any) -> Any:
        """Move, then die once."""
        out = super().move(record, event, **changes)
        if event == self.event:
            self.event = ""
            raise KeyboardInterrupt
        return out


@pytest.mark.parametrize(
    ("decision", "event"), [("approve", "approve"), ("edit", "approve"), ("edit", "deny"), ("reject", "deny")]
)
def test_a_decision_whose_process_died_is_told_all_the_same(desk: Desk, config: Any, decision: Any, event: str) -> None:
    """A process that dies between the ledger's move and the checkpoint leaves the decision told once, and no question open."""
    graph = desk(alice={"turns": [call("sure", order="A"), "done"], "tools": [privileged(sure)]})
    graph.ledger = Dying(event)
    graph.invoke(say("hi"), config)
    args = {"order": "A", "amount": 5.0} if decision == "edit" else None
    with pytest.raises(KeyboardInterrupt):
        decide(graph, config, decision, by="ana", args=args, message="because")
    graph.invoke(None, config)
    values = graph.get_state(config).values
    told = [(e["kind"], e["detail"].get("by")) for e in values["events"] if e["kind"] in ("asked", "decided")]
    assert told == [("asked", None), ("decided", "ana")]
    assert hops(graph, config) == ["alice", "human", "alice"]
    assert values["messages"][-1].text == "done"
    assert ran == {"approve": [("A", 1.0)], "edit": [("A", 5.0)], "reject": []}[decision]
    assert bool(values["case"].get("refused")) is (decision == "reject")
    assert graph.ledger.records(states=["proposed"]) == []


class Mortal(MemoryLedger):
    """Ends the run once, before or behind the move of this number."""

    def __init__(self, number: int = -1, when: str = "") -> None:
        super().__init__()
        self.number, self.when, self.moves = number, when, list[str]()

    def move(self, record: Any, event: str, **changes: Any) -> Any:
        """Move, and die there if this is the move."""
        self.moves.append(event)
        fatal = len(self.moves) == self.number + 1 and self.when
        if fatal == "before":
            raise KeyboardInterrupt
        out = super().move(record, event, **changes)
        if fatal == "behind":
            raise KeyboardInterrupt
        return out


def _three_decisions(desk: Desk, config: Any, ledger: Mortal, first: Any, transfer: Any) -> dict[str, Any]:
    """Take a turn of two writes, a look and an approved handoff through its questions; return what is left of it."""
    ran.clear()
    both = [call("sure", order="A"), call("sure", order="B"), call("transfer_to_bob", reason="r")]
    graph = desk(
        alice={
            "turns": [AIMessage("", tool_calls=[{**each, "id": f"c{i}"} for i, each in enumerate(both)]), "kept"],
            "tools": [privileged(sure)],
            "handoffs": [Handoff(to="bob", approval=True)],
        },
        bob={"turns": ["bob has it"]},
    )
    graph.ledger = ledger
    given: Any = say("hi")
    asked: dict[str, str] = {}
    for _ in range(20):
        try:
            graph.invoke(given, config)
        except KeyboardInterrupt:
            given = None
            continue
        if not graph.get_state(config).interrupts:
            break
        shown = request(graph, config)
        kind, order = shown["handoff"]["kind"], shown["action_requests"][0]["args"].get("order")
        asked[shown["handoff"]["request_id"]] = kind  # a question whose answer was lost is asked again, and is the same one
        answer: dict[str, Any] = {"type": "approve"}
        if kind == "unknown":
            answer = {"type": "done"}
        elif kind == "repeat":
            answer = {"type": "reject"}
        elif kind == "transfer":
            answer = {"type": transfer}
        elif order == "A" and first in ("edit", "collide"):
            args = {"order": "B", "amount": 1.0} if first == "collide" else {"order": "A", "amount": 7.0}
            answer = {"type": "edit", "edited_action": {"name": "sure", "args": args}}
        elif order == "A":
            answer = {"type": first}
        (interrupt,) = graph.get_state(config).interrupts
        about = {name: shown["handoff"][name] for name in ("request_id", "digest", "epoch")}
        given = Command(resume={interrupt.id: {"decisions": [{**answer, "by": "ana", **about}]}})
    values = graph.get_state(config).values
    kinds = [each["kind"] for each in values["events"]]
    return {
        "ran": list(ran),
        "owner": values["active_agent"],
        "last": values["messages"][-1].text,
        "faults": history_faults(values["messages"]),
        "refused": values["case"].get("refused"),
        "asked": sorted(asked.values()),
        "told": (kinds.count("asked"), kinds.count("decided"), kinds.count("written")),
        "human": hops(graph, config).count("human"),
        "left open": [each.state for each in ledger.records(states=["proposed", "approved", "executing"])],
    }


@pytest.mark.parametrize("transfer", ["approve", "reject"])
@pytest.mark.parametrize("first", ["approve", "reject", "edit", "collide"])
def test_a_turn_of_three_decisions_ends_the_same_wherever_it_is_killed(desk: Desk, first: Any, transfer: Any) -> None:
    """Killed around any move of the ledger, a turn runs the same writes once and tells every question and decision once."""
    whole = Mortal()
    wanted = _three_decisions(desk, {"configurable": {"thread_id": "whole"}}, whole, first, transfer)
    assert wanted["faults"] == wanted["left open"] == []
    assert wanted["told"][0] == wanted["told"][1] == wanted["human"] == len(wanted["asked"]) == 3
    for number, move in enumerate(whole.moves):
        for when in ("before", "behind"):
            config = {"configurable": {"thread_id": f"{number}-{when}"}}
            ended = _three_decisions(desk, config, Mortal(number, when), first, transfer)
            if (move, when) in (("start", "behind"), ("finish", "before")) and "unknown" in ended["asked"]:
                more = len(ended["asked"]) - len(wanted["asked"])
                assert (more, ended["told"][0], ended["human"]) == (1, 4, 4), (number, when)
                for name in ("asked", "told", "human", "ran"):
                    ended.pop(name)
            assert ended == {name: wanted[name] for name in ended}, (number, move, when)


def test_a_rejected_transfer_is_asked_twice_at_most(desk: Desk, config: Any) -> None:
    """The same handoff is put before a person at most twice, and then refused by rule until the turn ends with an answer."""
    graph = desk(
        alice={"turns": [call("transfer_to_bob", reason="r")] * 6, "handoffs": [Handoff(to="bob", approval=True)]},
        bob={"turns": []},
    )
    out = graph.invoke(say("hi"), config)
    asked = 0
    while "__interrupt__" in out:
        asked += 1
        out = decide(graph, config, "reject", by="ana", message="no")
    assert asked == 2
    assert out["messages"][-1].text
    assert len(model_of(graph, "alice").prompts) <= 6


def test_a_write_that_is_refused_by_rule_ends_the_turn_soon(desk: Desk, config: Any) -> None:
    """A model that goes on asking for a barred write is stopped after a few replies, not after a hundred."""
    graph = desk(alice={"turns": [call("sure", order="A")] * 20, "tools": [privileged(sure)]})
    graph.invoke(say("hi"), config)
    decide(graph, config, "reject", by="ana")
    out = decide(graph, config, "reject", by="ana")
    assert out["messages"][-1].text
    assert len(model_of(graph, "alice").prompts) <= 6
    assert history_faults(out["messages"]) == []


def test_two_writes_of_one_identity_in_one_message_are_a_write_and_a_repeat(desk: Desk, config: Any) -> None:
    """The second call of the same identity, with other details, shows that the first is approved already."""
    turn = [call("sure", order="A", amount=1.0), call("sure", order="A", amount=2.0)]
    graph = desk(alice={"turns": [turn, "done"], "tools": [privileged(sure, identity=("order",))]})
    graph.invoke(say("hi"), config)
    assert request(graph, config)["handoff"]["kind"] == "write"
    decide(graph, config, "approve", by="ana")
    assert request(graph, config)["handoff"]["kind"] == "repeat"
    decide(graph, config, "reject", by="ana")
    assert ran == [("A", 1.0)]


def test_a_rule_that_fails_lets_nothing_through(desk: Desk, config: Any) -> None:
    """A `when` that raises on what a model left out means that a person is asked."""
    graph = desk(
        alice={"turns": [call("sure", order="A"), "done"], "tools": [privileged(sure, when=lambda args: args["missing"] > 1)]}
    )
    graph.invoke(say("hi"), config)
    assert ran == []
    assert request(graph, config)["handoff"]["kind"] == "write"
