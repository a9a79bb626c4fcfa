"""The desks whose processes are killed: a table of shapes, each with what must be true of its case in the end."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from langgraph.graph import START, StateGraph

from langgraph_handoff import Agent, Handoff, HandoffState, create_handoff_graph, privileged
from langgraph_handoff.testing import ScriptedChatModel, call
from tests.restart.careless import bare_gate, conditional_gate
from tests.restart.points import Points
from tests.restart.savers import Kept
from tests.restart.world import Journal

TRANSFER: Final = call("transfer_to_bob", reason="r")
FIRST_USER_MESSAGE: Final = "user-1"


def pay(order: str, amount: int = 10) -> Any:
    return call("pay", order=order, amount=amount)


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A desk, what its person wants, and how its case must end."""

    calls: tuple[Any, ...] = (pay("A"),)
    """What alice's model asks for in its one turn."""
    privilege: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """How `pay` is guarded."""
    probed: bool = False
    fails: str = ""
    """At which step the tool fails the first time it runs."""
    edit: Mapping[str, Any] | None = None
    """Arguments that the person puts in place of the model's."""
    edge: Handoff | None = None
    nested: bool = False
    """Whether the desk is a node of a parent graph, which holds the checkpointer."""
    gate: Callable[[Stage], Any] | None = None
    """Builds the graph of a gate made by hand, which is answered with a bare yes or no."""
    restless: bool = False
    """Whether the model asks for another amount each time that it is asked."""

    written: tuple[str, ...] = ("A",)
    """Orders that must have been paid, once each."""
    states: tuple[str, ...] = ("done",)
    """Ends of the ledger's rows, in any order."""
    owner: str = "alice"
    unknown: bool | None = None
    """Whether a person must be asked what became of a write; None: if and only if the dead process had claimed one."""
    repeats: bool = False
    """Whether a person may be asked if a write shall be repeated: only where the host may lose the model's reply."""

    @property
    def writes(self) -> bool:
        """Whether the desk has a privileged tool."""
        return any(each["name"] == "pay" for each in self.calls)


EDGE: Final = Handoff(to="bob")
FLAT: Final = {
    "tool": Shape(),
    "two tools": Shape(calls=(pay("A"), pay("B")), written=("A", "B"), states=("done", "done")),
    "write beside handoff": Shape(calls=(pay("A"), TRANSFER), edge=EDGE, owner="bob"),
    "handoff": Shape(calls=(TRANSFER,), edge=EDGE, owner="bob", written=(), states=()),
    "transfer with approval": Shape(
        calls=(pay("A"), TRANSFER), edge=Handoff(to="bob", approval=True), owner="bob", states=("done", "done")
    ),
    "edit of a detail": Shape(privilege={"identity": ("order",)}, edit={"order": "A", "amount": 5}),
    "edit of the identity": Shape(edit={"order": "A", "amount": 5}, states=("denied", "done")),
    "fails before the effect": Shape(fails="before the effect", unknown=True),
    "fails after the effect": Shape(fails="after the effect", unknown=True),
    "probe": Shape(probed=True, unknown=False),
    "rule": Shape(privilege={"when": lambda args: False}),
}
NESTED: Final = {
    "nested": Shape(nested=True),
    "nested write beside handoff": Shape(calls=(pay("A"), TRANSFER), edge=EDGE, owner="bob", nested=True),
    "nested rule": Shape(privilege={"when": lambda args: False}, nested=True),
    "nested handoff": Shape(calls=(TRANSFER,), edge=EDGE, owner="bob", written=(), states=(), nested=True),
}


@dataclass(frozen=True)
class Stage:
    """What a desk stands on: where its case is kept, its world, and the points that its steps pass."""

    kept: Kept
    folder: Path
    points: Points
    stored_owner: Callable[[], str | None] = lambda: None

    @property
    def world(self) -> Journal:
        """The target of the writes."""
        return Journal(self.folder / "world.jsonl", durable=True)

    @property
    def acts(self) -> Journal:
        """Who acted, and who was stored as the owner at that moment."""
        return Journal(self.folder / "acts.jsonl")

    def pay(self, order: str, amount: int) -> None:
        """Carry out a write."""
        self.points.hit("before the effect")
        self.world.add(order=order, amount=amount)
        self.points.hit("after the effect")


def build(shape: Shape, stage: Stage) -> Any:
    """Compile the graph of a shape."""
    if shape.gate is not None:
        return shape.gate(stage)

    def alice(messages: list[Any]) -> Any:
        stage.points.hit("alice acts")
        if any(message.type == "tool" for message in messages):
            return "done"
        return [pay("A", secrets.randbelow(10**6))] if shape.restless else list(shape.calls)

    def bob(_: list[Any]) -> Any:
        stage.acts.add(agent="bob", stored=stage.stored_owner())
        stage.points.hit("bob acts")
        return "done"

    tools = [_guarded(shape, stage)] if shape.writes else []
    handoffs = [shape.edge] if shape.edge else []
    agents = [
        Agent(name="alice", description="A", model=_model(alice, "alice"), tools=tools, handoffs=handoffs),
        Agent(name="bob", description="B", model=_model(bob, "bob")),
    ]
    builder = create_handoff_graph(agents, default_active_agent="alice")
    if not shape.nested:
        return builder.compile(checkpointer=stage.kept.checkpointer, ledger=stage.kept.ledger)
    outer = StateGraph(HandoffState)
    outer.add_node("desk", builder.compile(ledger=stage.kept.ledger))
    outer.add_edge(START, "desk")
    return outer.compile(checkpointer=stage.kept.checkpointer)


def _model(turn: Any, agent: str) -> ScriptedChatModel:
    return ScriptedChatModel([turn], loop=True, agent=agent)


def _guarded(shape: Shape, stage: Stage) -> Any:
    tried = Journal(stage.folder / "tried.jsonl")

    def fail_once(step: str) -> None:
        if shape.fails == step and not tried.lines():
            tried.add(step=step)
            raise ConnectionError(step)

    def pay(order: str, amount: int) -> str:
        """Pay an order."""
        fail_once("before the effect")
        stage.pay(order, amount)
        fail_once("after the effect")
        return f"paid {order}"

    probe = (lambda args: stage.world.has(**args)) if shape.probed else None
    return privileged(pay, probe=probe, **shape.privilege)


def _due(*_: Any) -> list[tuple[str, int]]:
    return [("A", 10)]


CARELESS: Final = {
    "bare gate": Shape(gate=lambda stage: bare_gate(stage.kept.checkpointer, _due, stage.pay)),
    "conditional gate": Shape(gate=lambda stage: conditional_gate(stage.kept.checkpointer, stage.kept.ledger, _due, stage.pay)),
}
SHAPES: Final = {**FLAT, **NESTED, **CARELESS}
