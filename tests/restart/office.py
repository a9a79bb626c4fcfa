"""The office of the soak: what its cases are about, what its person wants, and the graph that works on them.

All of it follows from the seed and the case's number, so that a worker that begins anew in the middle of a case, and the checker
after the last of them, know the same.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from langgraph.config import get_config

from langgraph_handoff import Agent, create_handoff_graph, privileged
from langgraph_handoff.ledger import Ledger
from langgraph_handoff.testing import ScriptedChatModel, call
from tests.restart.person import Answer
from tests.restart.points import Points
from tests.restart.world import Journal

SMALL: Final = 5
"""Amounts below this are paid without a person."""
RAISED: Final = 1000
"""What an edit adds to an amount."""
WISHES: Final = ("approve",) * 6 + ("reject",) * 2 + ("edit",) + ("rule",) * 2
WRITES: Final = {"alice": "pay", "bob": "refund"}
_ABOUT: Final = re.compile(r"case (\d+), part (\d)")


@dataclass(frozen=True)
class Order:
    """A payment that a case is about."""

    name: str
    amount: int
    wish: str
    """What the person wants: approve, reject, edit; "rule" when nobody is asked."""

    def call(self, tool: str) -> Any:
        return call(tool, order=self.name, amount=self.amount)

    @property
    def paid(self) -> int | None:
        """The amount that must be paid, once; None when nothing must be."""
        return {"reject": None, "edit": self.amount + RAISED}.get(self.wish, self.amount)


@dataclass(frozen=True)
class Case:
    """A case: its orders by part and agent, its threads, and how it is run."""

    number: int
    parts: tuple[Mapping[str, tuple[Order, ...]], ...]
    """For each turn of the user: agent → what it asks to pay."""
    threads: tuple[str, ...]
    """A case that is worked on in two threads has one ledger: what one of them wrote the other may not write again."""
    way: str
    facts: Mapping[str, Any]
    """What alice's package tells bob."""

    @property
    def orders(self) -> Iterator[Order]:
        return (order for part in self.parts for orders in part.values() for order in orders)

    def said(self, part: int) -> dict[str, Any]:
        """Return the user's message of a part."""
        return {"role": "user", "content": f"settle case {self.number}, part {part}", "id": f"case-{self.number}-part-{part}"}


@dataclass(frozen=True)
class Office:
    """All cases of one seed."""

    seed: int
    ways: tuple[str, ...] = ("sync", "async")
    wishes: tuple[str, ...] = WISHES
    twins: float = 0.1
    """Share of cases that are worked on in two threads."""
    _made: dict[int, Case] = field(default_factory=dict)

    def case(self, number: int) -> Case:
        """Return a case."""
        return self._made.get(number) or self._made.setdefault(number, self._make(number))

    def _make(self, number: int) -> Case:
        choose = random.Random(f"{self.seed}/{number}")
        names = (f"{number}{letter}" for letter in "abcdefgh")

        def order() -> Order:
            wish = choose.choice(self.wishes)
            amount = choose.randrange(1, SMALL) if wish == "rule" else choose.randrange(SMALL, RAISED)
            return Order(next(names), amount, wish)

        first = {"alice": tuple(order() for _ in range(choose.choice((1, 1, 2)))), "bob": (order(),)}
        second = ({"bob": (order(),)},) if choose.random() < 0.3 else ()
        threads = (f"{number}", f"{number}-twin") if choose.random() < self.twins else (f"{number}",)
        facts = {"case": number, "orders": [each.name for each in first["alice"]], "nested": {"amount": choose.random()}}
        return Case(number, (first, *second), threads, choose.choice(self.ways), facts)

    def will(self, tool: str, args: Mapping[str, Any]) -> Answer:
        """Return what the person wants of a payment."""
        number = int(re.match(r"\d+", args["order"])[0])  # type: ignore[index]
        order = next(each for each in self.case(number).orders if each.name == args["order"])
        if order.wish == "edit":
            return "edit", {"order": order.name, "amount": order.paid}
        return ("reject" if order.wish == "reject" else "approve"), None


@dataclass(frozen=True)
class Desk:
    """What the graph of an office stands on."""

    office: Office
    checkpointer: Any
    ledger: Ledger | None
    world: Journal
    acts: Journal
    points: Points
    stored_owner: Callable[[str], str | None]

    @cached_property
    def graph(self) -> Any:
        """The compiled graph."""
        pay, refund = (privileged(each, when=_is_large, idempotency_key="op") for each in (self.pay, self.refund))
        agents = [
            Agent(name="alice", description="A", model=self._model("alice"), tools=[self.look_up, pay], handoffs=["bob"]),
            Agent(name="bob", description="B", model=self._model("bob"), tools=[self.look_up, refund]),
        ]
        builder = create_handoff_graph(agents, default_active_agent="alice")
        return builder.compile(checkpointer=self.checkpointer, ledger=self.ledger)

    def look_up(self, order: str) -> str:
        """Look an order up."""
        self.points.hit("look up")
        return f"{order} is open"

    def pay(self, order: str, amount: int, op: str) -> str:
        """Pay an order."""
        self.points.hit("before the effect")
        self.world.add(order=order, amount=amount, op=op, at=time.time())
        self.points.hit("after the effect")
        return f"paid {order}"

    def refund(self, order: str, amount: int, op: str) -> str:
        """Pay an order back."""
        return self.pay(order, amount, op)

    def _model(self, agent: str) -> ScriptedChatModel:
        return ScriptedChatModel([lambda prompt: self._turn(agent, prompt)], loop=True, agent=agent)

    def due(self, state: Mapping[str, Any], config: Any) -> list[tuple[str, int]]:
        """Return what is to be paid in the present part of a thread's case, for gates made by hand."""
        case = self.office.case(int(config["configurable"]["thread_id"].split("-")[0]))
        part = case.parts[sum(each.type == "human" for each in state["messages"]) - 1]
        return [(order.name, order.amount) for orders in part.values() for order in orders]

    def pay_bare(self, order: str, amount: int) -> None:
        """Pay an order under no operation's name."""
        self.pay(order, amount, order)

    def _turn(self, agent: str, prompt: list[Any]) -> Any:
        number, part = map(int, _ABOUT.findall(next(m.text for m in reversed(prompt) if _ABOUT.search(m.text)))[-1])
        thread = str(get_config()["configurable"]["thread_id"])
        self.acts.add(thread=thread, agent=agent, stored=self.stored_owner(thread))
        self.points.hit(f"{agent} acts")
        case = self.office.case(number)
        orders = case.parts[part - 1].get(agent, ())
        if prompt[-1].type == "tool" or not orders:
            return f"done {part}"
        calls = [call("look_up", order=orders[0].name), *(order.call(WRITES[agent]) for order in orders)]
        return [*calls, call("transfer_to_bob", reason="r", known_facts=dict(case.facts))] if agent == "alice" else calls


def _is_large(args: Mapping[str, Any]) -> bool:
    return bool(args["amount"] >= SMALL)
