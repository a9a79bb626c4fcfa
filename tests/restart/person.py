"""The person who answers, and the line to the graph: both see only what the API shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from langgraph.types import Command

from langgraph_handoff import adecide, decide
from tests.restart.world import Journal

Answer = tuple[str, Mapping[str, Any] | None]
"""A decision and, for an edit, the arguments."""


@dataclass(frozen=True)
class Line:
    """A client's line to one thread of a graph, in one way and durability."""

    graph: Any
    thread_id: str = "case"
    way: str = "sync"
    durability: str | None = "sync"
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of `configurable`."""
    bare: bool = False
    """Whether questions are answered with a bare yes or no, as gates made by hand take it."""

    @property
    def config(self) -> dict[str, Any]:
        return {"configurable": {"thread_id": self.thread_id, **self.more}}

    async def look(self, **given: Any) -> Any:
        """Return the snapshot."""
        if self.way == "async":
            return await self.graph.aget_state(self.config, **given)
        return self.graph.get_state(self.config, **given)

    async def run(self, given: Any) -> Any:
        """Run the graph on an input."""
        return await self.ainvoke(given, self.config) if self.way == "async" else self.invoke(given, self.config)

    async def decide(self, decision: str, request_id: str, by: str, args: Mapping[str, Any] | None = None) -> Any:
        """Answer a request."""
        if self.bare:
            return await self.run(Command(resume="yes" if decision in ("approve", "done") else "no"))
        given: dict[str, Any] = {"by": by, "request_id": request_id, "args": args}
        if self.way == "async":
            return await adecide(self, self.config, decision, **given)  # type: ignore[arg-type]
        return decide(self, self.config, decision, **given)  # type: ignore[arg-type]

    # What `decide` needs of a graph: the runs that it starts have this line's durability too.

    def get_state(self, config: Any) -> Any:
        return self.graph.get_state(config)

    async def aget_state(self, config: Any) -> Any:
        return await self.graph.aget_state(config)

    def invoke(self, given: Any, config: Any) -> Any:
        return self.graph.invoke(given, config, durability=self.durability)

    async def ainvoke(self, given: Any, config: Any) -> Any:
        return await self.graph.ainvoke(given, config, durability=self.durability)


@dataclass(frozen=True)
class Person:
    """Says what it wants of a write, the truth about an unknown outcome, and no to a repeat."""

    world: Journal
    will: Callable[[str, Mapping[str, Any]], Answer]
    """Given a tool and its arguments, what the person wants."""

    def answer(self, shown: Mapping[str, Any]) -> Answer:
        """Answer a question by what its payload says."""
        kind, action = shown["handoff"]["kind"], shown["action_requests"][0]
        if kind == "unknown":
            return ("done" if self.world.has(**action["args"]) else "did_not_happen"), None
        if kind == "repeat":
            return "reject", None
        return self.will(action["name"], action["args"])
